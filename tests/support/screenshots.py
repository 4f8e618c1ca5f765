"""The pictures in docs/images: status page, site and report from a real browser, and the dashboard; `make screenshots`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from keyorder import KeyorderError, OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.local.cluster import LocalCluster
from PIL import Image
from support.browser import PHONE, WIDE, Browser, browser, missing
from support.dashboard import picture as dashboard
from support.silent_writer import SilentWriter

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
TOPIC = "orders"


@contextmanager
def status_page(bootstrap_servers: str, *more: str) -> Iterator[str]:
    """The address of `keyorder status --serve` of a cluster."""
    words = ["status", "--bootstrap-server", bootstrap_servers, "--serve", "0", "--output", "json", *more]
    with subprocess.Popen([sys.executable, "-m", "keyorder", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.kill()


@contextmanager
def change_under_way(config: dict[str, Any], topic: str, name: str = "", silent: str = "") -> Iterator[None]:
    """A managed topic of four partitions grows to six, with a closed gate, a lagging group, and a growth that waits.

    name: of the group. silent: the writer that the growth waits for.
    """
    admin = TopicAdmin(config)
    group = {
        **config,
        "group.id": name or f"billing of {topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with ExitStack() as stack:
        producer = stack.enter_context(OrderedProducer({**config, "client.id": "checkout"}))
        _write(producer, topic, 400)
        with OrderedConsumer(group) as consumer:
            consumer.subscribe([topic])
            seen: list[Any] = []
            while not seen:
                seen = consumer.consume(10, 1.0)
            consumer.commit(asynchronous=False)
        admin.expand(topic, 6)
        _write(producer, topic, 50)
        stack.enter_context(SilentWriter(config, topic, writer=silent))

        def grow() -> None:
            try:
                admin.expand(topic, 7, timeout=600)
            except KeyorderError:  # it was given up, as it is below
                return

        growth = threading.Thread(target=grow, daemon=True)
        growth.start()
        try:
            yield
        finally:
            admin.abort(topic)
            growth.join()


def _write(producer: OrderedProducer, topic: str, records: int) -> None:
    for n in range(records):
        producer.produce(topic, str(n), f"customer {n}")
    producer.flush()


def shrunk(path: Path) -> None:
    """As few bytes as the picture needs: 128 colours."""
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def main(only: str = "") -> None:
    """Draw all of them anew, or the one that needs no browser. only: `dashboard`, or empty."""
    if only not in ("", "dashboard"):
        raise SystemExit(f"ONLY={only} is not known: it is dashboard, or nothing")
    why = missing()
    if why and not only:
        raise SystemExit(why)
    dashboard(IMAGES / "dashboard.png")
    shrunk(IMAGES / "dashboard.png")
    if only:
        return
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        with LocalCluster(data_dir=Path(folder) / "brokers") as cluster:
            config = {"bootstrap.servers": cluster.bootstrap_servers}
            _status(window, config)
            report = Path(folder) / "report"
            words = ["demo", "--seconds", "30", "--partitions", "4,6,9", "--report-dir", str(report)]
            words += ["--bootstrap-server", cluster.bootstrap_servers, "--output", "json"]
            subprocess.run([sys.executable, "-m", "keyorder", *words], check=True, stdout=subprocess.DEVNULL)
        window.show((report / "report.html").as_uri(), (1100, 1060))
        window.picture(IMAGES / "report.png")
        _site(window, Path(folder) / "site")
    for name in ("status", "status-phone", "report", "site", "site-phone"):
        shrunk(IMAGES / f"{name}.png")


def _site(window: Browser, folder: Path) -> None:
    words = [sys.executable, "-Im", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(words, cwd=IMAGES.parents[1], check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    pages = (("site", "concepts", WIDE, False), ("site-phone", "index", PHONE, True))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:  # for its search
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, page, size, dark in pages:
            window.show(f"http://127.0.0.1:{server.server_port}/{page}.html", size, dark)
            window.wait("return document.readyState === 'complete'")
            window.picture(IMAGES / f"{name}.png")
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: that a page was asked for is no news."""


def _status(window: Browser, config: dict[str, Any]) -> None:
    TopicAdmin(config).create(TOPIC, 4)
    with (
        change_under_way(config, TOPIC, "billing", "inventory-7"),
        status_page(config["bootstrap.servers"], "--topic", TOPIC, "--interval", "0.5") as url,
    ):
        for name, size, dark in (("status", (1000, 700), False), ("status-phone", (390, 844), True)):
            window.show(url, size, dark)
            window.wait("return document.querySelector('main').innerText.includes('waiting for READY')")
            window.picture(IMAGES / f"{name}.png", whole=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
