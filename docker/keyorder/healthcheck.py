"""The image's health check: ends with 0 if the controller or the Connect worker of this container says that it is well.

KEYORDER_HEALTH_URL: where to ask. Without it the controller's port is asked, then the REST of a worker; the first one
that answers decides. KEYORDER_REST_TOKEN: the worker's rest.token.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request


def places() -> list[str]:
    """The URLs to ask, in order."""
    named = os.environ.get("KEYORDER_HEALTH_URL")
    if named:
        return [named]
    port = os.environ.get("KEYORDER_METRICS_PORT") or "9404"
    return [f"http://127.0.0.1:{port}/healthz", "http://127.0.0.1:8083/health"]


def ask(url: str) -> tuple[int, str]:
    """The status and the text of the answer. Raises OSError if nobody listens there."""
    # The container's own address: no proxy of its environment may be asked, and its certificate bears another name.
    unverified = ssl.create_default_context()
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified)
    )
    token = os.environ.get("KEYORDER_REST_TOKEN")
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with opener.open(request, timeout=8) as answer:
            return answer.status, answer.read(1000).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(1000).decode("utf-8", "replace")


def main() -> int:
    """The exit status; what was heard is printed for `docker inspect`."""
    for url in places():
        try:
            status, text = ask(url)
        except OSError as error:
            print(f"{url}: {error}")
            continue
        print(f"{url}: {status} {text.strip()}")
        return 0 if status == 200 else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
