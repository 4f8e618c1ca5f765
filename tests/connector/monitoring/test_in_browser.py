"""The pages in a real browser: they fit a phone and a wide screen, in both schemes, and nothing is refused or missing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from keyorder import TopicAdmin
from support.browser import PHONE, WIDE, Browser, browser, missing
from support.cluster import KafkaUnderTest
from support.screenshots import change_under_way, status_page
from support.sequence_diagrams import DIAGRAMS, Diagram, path

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "there is one")
LOOKS = [(PHONE, False), (PHONE, True), (WIDE, False), (WIDE, True)]
CONTRAST = """
const parts = colour => colour.match(/[0-9.]+/g).map(Number);
const shine = colour => {
  const [r, g, b] = parts(colour).slice(0, 3).map(c => c / 255).map(c => c <= .04 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const page = matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(18, 18, 18)" : "rgb(255, 255, 255)";
const [a, b] = [shine(getComputedStyle(document.querySelector(arguments[0])).color), shine(page)].sort();
return (b + .05) / (a + .05);
"""


# Tables and pictures that have to be scrolled sideways.
CUT_OFF = "return [...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)"
# The partitions on the line of time that is shown: one for a phone, one for a wide screen.
COUNTS = """
const shown = [...document.querySelectorAll('.line .count')].filter(e => e.getBoundingClientRect().width);
return shown.map(e => e.textContent);
"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """One browser for the file."""
    with browser() as opened:
        yield opened


def test_the_status_page_follows_a_change(kafka: KafkaUnderTest, topic_name: str, window: Browser) -> None:
    """Live, with whom it waits for; readable and no wider than the screen; the policy lets its own script and style through."""
    config = kafka.client_config()
    TopicAdmin(config).create(topic_name, 4)
    waits = "return document.querySelector('main').innerText.includes(arguments[0])"
    with status_page(kafka.bootstrap_servers, "--interval", "0.2", "--topic", topic_name) as url:
        window.show(url)
        with change_under_way(config, topic_name):
            window.wait(waits, f"waiting for READY from silent of {topic_name}")
            assert "6 not in use" in window.text("main")
            assert f"billing of {topic_name}\t440\t2" in window.text("main")
            for size, dark in LOOKS:
                window.show(url, size, dark)
                window.wait(waits, "Change to 7 partitions")
                assert window.too_wide() == []
                assert window.run(CONTRAST, ".wait") > 4.5
                assert window.run(CUT_OFF) == []
                assert window.run(COUNTS) == ["4", "6"]
            shown = window.run("return document.querySelector('main').innerHTML")
        TopicAdmin(config).shrink(topic_name, 5)
        window.wait(waits, f"billing of {topic_name}\t440\t3")  # what lies in the retired partition is lag, too
        window.wait(waits, "5 partitions, 4 at first, 1 not in use, 1 retired, epoch 3")
        window.wait("return document.querySelectorAll('.line.wide .count').length === 3")
        assert window.run("return document.querySelector('main').innerHTML") != shown
        assert window.complaints() == []
    window.wait("return getComputedStyle(document.querySelector('#lost')).display === 'block'")


OVERLAPS = """
const edge = document.documentElement.getBoundingClientRect(), found = [];
const boxes = [...document.querySelectorAll("text")].map(e => [e.textContent, e.getBoundingClientRect()]);
for (const [i, [text, a]] of boxes.entries()) {
  if (a.left < edge.left || a.right > edge.right || a.bottom > edge.bottom) found.push(text);
  for (const [other, b] of boxes.slice(i + 1))
    if (a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom) found.push([text, other]);
}
return found;
"""


@pytest.mark.slow
@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda diagram: diagram.name)
def test_the_words_of_a_sequence_diagram_stand_apart(window: Browser, diagram: Diagram) -> None:
    """Each inside the picture, and none over another."""
    window.show(path(diagram).as_uri(), WIDE)
    assert window.run("return document.querySelectorAll('text').length") > 10
    assert window.run(OVERLAPS) == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The folder over HTTP: read from the disk, a browser lets no page fetch the search's index."""
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """As it says."""


@pytest.mark.nightly
def test_the_site_fits_every_screen(window: Browser, tmp_path: Path, served: str) -> None:
    """Each page, on a phone and wide: tables and code scroll by themselves. The scheme follows the reader's."""
    words = [sys.executable, "-Im", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [page for page in sorted(tmp_path.glob("*.html")) if page.stem != "404"]
    window.show(f"{served}/index.html")
    window.complaints()  # what the page before said when its server had ended
    wide = {}
    for page in pages:
        window.show(f"{served}/{page.name}")
        for size in (PHONE, WIDE):
            window.resize(size)
            if found := window.too_wide():
                wide[page.stem, size] = found
    assert wide == {}
    assert window.complaints() == []
    schemes = []
    for dark in (False, True):
        window.show(f"{served}/index.html", WIDE, dark)
        schemes.append(window.run("return document.body.getAttribute('data-md-color-scheme')"))
    assert schemes == ["default", "slate"]
