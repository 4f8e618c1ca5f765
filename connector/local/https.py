"""HTTPS as this machine trusts it: its own certificate store, which a company's proxy is in, beside the library's list."""

from __future__ import annotations

import ssl
from typing import Any

import requests
import truststore
from requests.adapters import HTTPAdapter


class _SystemTrust(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        kwargs["ssl_context"] = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().init_poolmanager(*args, **kwargs)


def session() -> requests.Session:
    """A session of one download. REQUESTS_CA_BUNDLE adds its certificates, as for any program that uses requests."""
    made = requests.Session()
    made.mount("https://", _SystemTrust())
    return made
