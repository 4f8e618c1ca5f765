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
    """Draw all of them anew, or one kind. only: `dashboard`, `report`, `site`, `status`, or empty."""
    kinds = {"dashboard": _dashboard, "report": _report, "site": _site, "status": _status}
    if only and only not in kinds:
        raise SystemExit(f"ONLY={only} is not known: it is one of {', '.join(kinds)}, or nothing")
    if (why := missing()) and only != "dashboard":
        raise SystemExit(why)
    for draw in [kinds[only]] if only else kinds.values():
        for name in draw():
            shrunk(IMAGES / f"{name}.png")


def _dashboard() -> list[str]:
    dashboard(IMAGES / "dashboard.png")
    return ["dashboard"]


def _report() -> list[str]:
    """Of a run in which the stock clients were not lucky: on a calm machine they sometimes are."""
    with tempfile.TemporaryDirectory() as folder, LocalCluster(data_dir=Path(folder) / "brokers") as cluster:
        for attempt in range(5):
            report = Path(folder) / f"report-{attempt}"
            words = ["demo", "--seconds", "30", "--partitions", "4,6,9", "--report-dir", str(report)]
            words += ["--bootstrap-server", cluster.bootstrap_servers, "--output", "json"]
            told = subprocess.run([sys.executable, "-m", "keyorder", *words], check=True, stdout=subprocess.PIPE)
            if json.loads(told.stdout)["stock"]["reordered_keys"]:
                break
        with browser() as window:
            window.show((report / "report.html").as_uri(), (1100, 1060))
            window.picture(IMAGES / "report.png")
    return ["report"]


def _site() -> list[str]:
    with tempfile.TemporaryDirectory() as folder, browser() as window:
        words = [sys.executable, "-Im", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
        subprocess.run(words, cwd=IMAGES.parents[1], check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
        _pages(window, folder)
    return ["site", "site-phone"]


def _pages(window: Browser, folder: str) -> None:
    pages = (("site", "concepts", WIDE, False), ("site-phone", "index", PHONE, True))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder)) as server:  # for its search
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, page, size, dark in pages:
            window.show(f"http://127.0.0.1:{server.server_port}/{page}.html", size, dark)
            window.wait("return document.readyState === 'complete'")
            window.picture(IMAGES / f"{name}.png")
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing: that a page was asked for is no news."""


def _status() -> list[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(data_dir=Path(folder) / "brokers") as cluster,
        browser() as window,
    ):
        _status_of(window, {"bootstrap.servers": cluster.bootstrap_servers})
    return ["status", "status-phone"]


def _status_of(window: Browser, config: dict[str, Any]) -> None:
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
