"""A real headless Chromium, driven over WebDriver: pages as people see them, on a phone and on a wide screen."""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

PHONE, WIDE = (390, 844), (1440, 900)
# Limit of every call and wait, in seconds: it ends a browser that has died, and judges no speed.
LIMIT = 180
_FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]


def missing() -> str:
    """Why no browser can be had on this machine; empty when there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return (
        f"no {' and no '.join(absent)} on this machine (Debian: apt-get install chromium chromium-driver)"
        if absent
        else ""
    )


class Browser:
    """One window. Made by browser()."""

    def __init__(self, session: str) -> None:
        self._session = session

    def show(self, url: str, size: tuple[int, int] = WIDE, dark: bool = False) -> None:
        """Load a page into a window of this size (CSS pixels), for a user who prefers light or dark."""
        self.resize(size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._ask("url", {"url": url})
        if self.run("const kept = localStorage.length; localStorage.clear(); return kept"):
            self._ask("url", {"url": url})  # a page that has kept its scheme from an earlier visit chooses anew

    def resize(self, size: tuple[int, int]) -> None:
        """Another size of the window, with the page that it shows."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a function body in JavaScript."""
        return self._ask("execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str = "body") -> str:
        """The words of the first element that a CSS selector finds, as they are seen."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def wait(self, script: str, *arguments: object) -> Any:
        """What a function body returns once that is true. Raises AssertionError with the page's words after LIMIT."""
        end = time.monotonic() + LIMIT
        while not (value := self.run(script, *arguments)):
            assert time.monotonic() < end, f"never true: {script}\n{self.text()}"
            time.sleep(0.05)
        return value

    def too_wide(self) -> list[str]:
        """What reaches beyond the window's right edge, outside of areas that scroll by themselves."""
        found: list[str] = self.run(_TOO_WIDE)
        return found

    def complaints(self) -> list[str]:
        """What the browser has logged since the last call: errors of scripts, of policies, of files that are missing."""
        return [entry["message"] for entry in self._ask("se/log", {"type": "browser"})]

    def picture(self, path: Path, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        shot = self._devtools("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(shot["data"]))

    def _devtools(self, command: str, params: dict[str, Any]) -> Any:
        return self._ask("goog/cdp/execute", {"cmd": command, "params": params})

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        return _posted(f"{self._session}/{path}", body)


_TOO_WIDE = """
const edge = document.documentElement.clientWidth + 1, found = [];
const scrolls = e => ["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(e).overflowX);
for (const element of document.querySelectorAll("body *")) {
  const box = element.getBoundingClientRect();
  if (!box.width || box.right <= edge || box.left >= edge) continue;
  let above = element.parentElement;
  while (above && !(scrolls(above) && above.getBoundingClientRect().right <= edge)) above = above.parentElement;
  if (!above) found.push(element.tagName + ": " + element.textContent.trim().slice(0, 60));
}
return found;
"""


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="keyorder-browser-", ignore_cleanup_errors=True) as profile:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        root = f"http://127.0.0.1:{port}"
        try:
            _await(root, driver)
            options = {
                "binary": shutil.which("chromium"), "args": [*_FLAGS, f"--user-data-dir={profile}"]
            }  # fmt: skip
            wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
            session = f"{root}/session/{_posted(f'{root}/session', {'capabilities': wanted})['sessionId']}"
            try:
                yield Browser(session)
            finally:
                with contextlib.suppress(requests.RequestException):
                    requests.delete(session, timeout=LIMIT)
        finally:
            driver.terminate()
            driver.wait(LIMIT)


def _await(root: str, driver: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LIMIT
    while True:
        assert driver.poll() is None, f"chromedriver ended with {driver.returncode}"
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(f"{root}/status", timeout=LIMIT).json()["value"]["ready"]:
                return
        assert time.monotonic() < end, "chromedriver never became ready"
        time.sleep(0.05)


def _posted(url: str, body: dict[str, Any]) -> Any:
    said = requests.post(url, json=body, timeout=LIMIT).json()["value"]
    assert not (isinstance(said, dict) and "error" in said), said
    return said
