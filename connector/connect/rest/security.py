"""Who may reach the REST: loopback as it is; any other address only with TLS or a token."""

from __future__ import annotations

import base64
import hmac
import ipaddress
import socket
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ....partitioner.errors import ConfigError

_CERTIFICATE, _KEY = "rest.ssl.certificate.location", "rest.ssl.key.location"
# What distributions' /etc/hosts call the loopback. No name of the public DNS.
_LOOPBACK = {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}


@dataclass(frozen=True)
class Listener:
    """Where the REST listens. token: what every request must carry as `Authorization: Bearer`."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None
    token: str | None = None

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.certificate is None else "https"


def listener_of(parsed: Mapping[str, Any]) -> Listener | None:
    """The listener of a worker's settings; None for no REST. Raises ConfigError where it would be open to anybody."""
    words = parsed["listeners"]
    if not words:
        return None
    if len(words) > 1:
        raise ConfigError("listeners", f"{len(words)} addresses", "give one")
    parts = urlsplit(words[0] if "://" in words[0] else f"http://{words[0]}")
    try:
        port = 8083 if parts.port is None else parts.port
    except ValueError:
        raise ConfigError("listeners", repr(words[0]), "write http://host:port") from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ConfigError("listeners", f"the protocol {parts.scheme!r}", "use http or https")
    host = parts.hostname or ""
    token = parsed["rest.token"].value if parsed["rest.token"] is not None else None
    if token is not None and len(token) < 8:
        raise ConfigError("rest.token", "it is shorter than 8 characters", "use a long random one")
    secure = parts.scheme.lower() == "https"
    files = parsed[_CERTIFICATE], parsed[_KEY]
    if secure:
        for name, file in zip((_CERTIFICATE, _KEY), files, strict=True):
            if not file or not Path(file).is_file():
                raise ConfigError(name, "an https:// listener needs it, and it is no file", "name a PEM file")
        _check_pem(*files)
    if not secure and token is None and not is_loopback(host):
        raise ConfigError(
            "listeners",
            f"{words[0]} could be used by anybody who reaches it",
            "listen on localhost, use https://, or set rest.token",
        )
    return Listener(host, port, files[0] if secure else None, files[1] if secure else None, token)


def _check_pem(certificate: str, key: str) -> None:
    """Load what the server is to load: there it would end the thread that answers. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(certificate)
    except OSError as error:
        raise ConfigError(
            _CERTIFICATE, f"no certificate can be read from it ({_why(error)})", "name a PEM file"
        ) from error
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # else OpenSSL asks the terminal
    except OSError as error:
        raise ConfigError(
            _KEY,
            f"it and the certificate cannot be used ({_why(error)})",
            "name the PEM file of the certificate's key, not encrypted",
        ) from error


def _why(error: OSError) -> str:
    return (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or type(error).__name__


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own only. A name counts if all its addresses do."""
    if not host:
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in found)


def own_names(listener: Listener, advertised: str | None) -> frozenset[str] | None:
    """The names, beside localhost and addresses, by which a request may call a worker; None for any.

    A web page can point its own name at this machine once it is open (DNS rebinding). Only the Host of its requests tells:
    to an http URL of such a name a browser sends no Sec-Fetch-Site, and with a GET to the page's own origin no Origin.
    A page knows no token, and no certificate fits its name: where the worker has one of them any name will do, such as
    a service's. A worker without both listens on loopback alone, where few names lead.
    """
    if listener.token is not None or listener.certificate is not None:
        return None
    found = listener.host.lower().rstrip("."), _name_in(advertised or ""), socket.gethostname().lower()
    return frozenset(found) - {""}


def is_own(host: str, names: Collection[str]) -> bool:
    """Whether a Host header is localhost, an address or one of the names; whatever the port, which a tunnel may change."""
    name = _name_in(f"//{host}")
    if name in names or name in _LOOPBACK or name.endswith(".localhost"):
        return True
    try:
        if ":" in name:
            ipaddress.ip_address(name)
        else:
            socket.inet_aton(name)  # 127.1, too
    except (ValueError, OSError):
        return False
    return True


def _name_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def allowed(header: str | None, token: str | None) -> bool:
    """Whether a request's Authorization header carries the token: as a bearer's, or as the password of any user (Basic)."""
    if token is None:
        return True
    kind, _, given = (header or "").partition(" ")
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except ValueError:
            return False
    elif kind != "Bearer":
        return False
    return hmac.compare_digest(given.encode(), token.encode())
