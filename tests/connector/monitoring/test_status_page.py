"""`keyorder status --serve`: the page, what it refuses, and that it follows the cluster."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from wsgiref.util import setup_testing_defaults

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.cli.changes.status import look_document
from keyorder.connector.group_gates import GateNeed, GroupGate
from keyorder.connector.monitoring.epoch_line import epoch_line
from keyorder.connector.monitoring.status_page import body, page
from keyorder.connector.monitoring.status_server import application
from keyorder.connector.monitoring.watching import Look
from keyorder.connector.operations.change_status import Answer, ChangeStatus, WriterProgress
from keyorder.connector.operations.description import GroupDescription, TopicDescription, WriterDescription
from keyorder.partitioner.epochs import ChangePhase, Drain, Epoch, OpenChange
from keyorder.partitioner.errors import UnmanagedTopicError
from keyorder.partitioner.layout import Layout
from keyorder.partitioner.modes import Mode
from support.cluster import KafkaUnderTest

_CHANGE = OpenChange(4, 6, ChangePhase.PREPARE, attempt=2, deadline_ms=20_000)
_GATE = GroupGate(3, 3, 120, 0, False, False, False, (GateNeed(1, 300, 250),), (GateNeed(1, 300, 250),))
_TOPIC = TopicDescription(
    "orders", "id", Layout(2, 4), 5, True,
    (Epoch(1, 2), Epoch(3, 4, committed_at_ms=1_795_309_323_000, held_ms=250)), _CHANGE,
    modes={0: Mode.READ_WRITE, 1: Mode.READ_WRITE, 2: Mode.READ_WRITE, 3: Mode.READ_WRITE, 4: Mode.READ_ONLY},
    writers=(WriterDescription("<script>alert(1)</script>", 1, ("orders",), True, 45_000, 1_795_309_320_000),),
    retired=(Drain(4, 3, 77),),
    groups=(GroupDescription("g & <b>co</b>", {0: 4, 1: 250}, (_GATE,), 2),),
)  # fmt: skip
_WAITS = ChangeStatus(
    "orders", Layout(2, 4), 3, _CHANGE, 1_795_309_322_000, None, False,
    (WriterProgress("w1", 1, False, Answer.HOLDING, None, 45_000),), "it waits for READY from w1", (),
)  # fmt: skip
_LOOK = Look(
    1_795_309_330_000, (_TOPIC,), {"broken": UnmanagedTopicError("broken")}, {("orders", 0): 10, ("orders", 1): 260},
    {}, {("g & <b>co</b>", "orders", 3, 3): 60.0}, {"orders": _WAITS},
)  # fmt: skip


class Outline(HTMLParser):
    """The tags of a page that are open at its end, all that it has, and its words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += f"{data} "


def test_the_page_tells_what_waits_and_for_what() -> None:
    """Topic, tree, change, epochs, group with lag and gate, retired partition, writer; each name as text."""
    found = Outline(page(body(_LOOK, "", 100.0), "n", 2.0))
    words = re.sub(r"\s+", " ", found.words)
    assert found.open == []
    assert found.tags.isdisjoint({"b", "img", "link", "form"})
    for expected in (
        "As of 2026-11-22 01:02:10 UTC, 1 managed topic.",
        "4 partitions, 2 at first, 1 retired, epoch 3, in order",
        "Change to 6 partitions: PREPARE since 2026-11-22 01:02:02 UTC, attempt 2, under way",
        "it waits for READY from w1",
        "3 4 2026-11-22 01:02:03 UTC 0.25 s",
        "g & <b>co</b> 16 1 40 s",
        "g & <b>co</b> 3 3 120 partition 1 up to 300 (is at 250)",
        "4 waiting 77 -",
        "<script>alert(1)</script> 1 yes 10 s ago",
        "broken It cannot be read.",
    ):
        assert expected in words, expected
    tree = body(_LOOK, "", 100.0)
    assert "<li><span>0</span><ul><li><span>2</span></li>" in tree
    assert '<li><span class="retired">4 read only</span></li></ul></li><li><span>1</span>' in tree


def test_a_partition_that_a_growth_has_made_is_not_retired() -> None:
    """It is there and takes no records, before the commit and when the growth was given up."""
    modes = {**_TOPIC.modes, 4: Mode.READ_WRITE}
    look = replace(_LOOK, topics=(replace(_TOPIC, modes=modes, retired=()),))
    shown = body(look, "", 100.0)
    assert "4 partitions, 2 at first, 1 not in use, epoch 3" in shown
    assert '<span class="unused">4 not in use</span>' in shown


def test_a_long_list_of_epochs_is_cut_off() -> None:
    """The newest ones, and how many there are besides."""
    epochs = tuple(Epoch(n, 2) for n in range(20))
    shown = body(replace(_LOOK, topics=(replace(_TOPIC, epochs=epochs),)), "", 100.0)
    assert shown.count("<td class=n>2</td>") == 12
    assert "<p>8 earlier epochs</p>" in shown


_DAY = 86_400_000
_AT = 1_795_309_323_000  # 2026-11-22 01:02:03 UTC


def segments(svg: str) -> list[tuple[float, float, float]]:
    """(from, to, height) of each epoch on the line."""
    return [(float(a), float(b), float(y)) for a, y, b in re.findall(r"[ML]([\d.]+) ([\d.]+)H([\d.]+)", svg)]


def test_epochs_stand_on_a_line_with_counts_and_times() -> None:
    """Each begins where the one before ends; more partitions are higher up; what lasted longer is longer."""
    epochs = (
        Epoch(0, 4, committed_at_ms=_AT - 5 * _DAY),
        Epoch(1, 6, committed_at_ms=_AT - _DAY),
        Epoch(3, 5, committed_at_ms=_AT),
    )
    shown = epoch_line(epochs, _AT)
    found = Outline(shown)
    assert found.open == []
    words = found.words.split()
    assert words == ["4", "2026-11-17", "01:02:03", "6", "2026-11-21", "01:02:03", "5", "2026-11-22", "01:02:03"]
    first, second, third = segments(shown)
    assert (first[1], second[1]) == (second[0], third[0])
    assert first[2] > third[2] > second[2]
    assert first[1] - first[0] > second[1] - second[0] > third[1] - third[0] > 80
    assert "Partitions over time (UTC)" in body(replace(_LOOK, topics=(replace(_TOPIC, epochs=epochs),)), "", 100.0)


def test_a_line_of_many_epochs_has_the_newest_and_room_for_each() -> None:
    """Their words do not meet, however soon they followed each other."""
    epochs = tuple(Epoch(n, 2 + n, committed_at_ms=_AT + n) for n in range(20))
    found = segments(epoch_line(epochs, _AT + _DAY))
    assert len(found) == 6
    assert all(end - begin > 80 for begin, end, _ in found)


def test_times_that_go_back_or_are_not_known_break_no_line() -> None:
    """Another controller's clock may lag; timelines of earlier versions have no times. Without any there is no line."""
    lagging = (
        Epoch(0, 4, committed_at_ms=_AT),
        Epoch(1, 6, committed_at_ms=_AT - _DAY),
        Epoch(2, 7, committed_at_ms=_AT),
    )
    assert all(end - begin > 80 for begin, end, _ in segments(epoch_line(lagging, _AT - 2 * _DAY)))
    beginning = epoch_line((Epoch(0, 4), Epoch(1, 6, committed_at_ms=_AT)), _AT + _DAY)
    assert Outline(beginning).words.split() == ["4", "before", "6", "2026-11-22", "01:02:03"]
    assert epoch_line((Epoch(0, 4), Epoch(1, 6)), _AT) == ""
    assert epoch_line((), _AT) == ""
    assert "Partitions over time" not in body(replace(_LOOK, topics=(replace(_TOPIC, epochs=(Epoch(0, 4),)),)), "", 1.0)


def test_lag_counts_a_partition_that_a_group_has_not_begun() -> None:
    """It was made since: all that lies in it is unread."""
    look = replace(_LOOK, ends={**_LOOK.ends, ("orders", 2): 30}, starts={("orders", 2): 5, ("orders", 0): 0})
    assert look.lag("orders", _TOPIC.groups[0]) == 16 + 25


def test_a_look_that_fails_is_told_and_the_last_one_stays() -> None:
    """Also before the first one has succeeded."""
    assert "under way" in body(Look(0), "", 0.0)
    assert "no broker &lt;answers&gt;" in body(Look(0), "no broker <answers>", 0.0)
    shown = body(_LOOK, "no broker answers", 100.0)
    assert "no broker answers" in shown
    assert "orders" in shown


def test_the_object_has_lag_and_whom_a_change_waits_for() -> None:
    """Beside what `status --output json` has."""
    found = json.loads(json.dumps(look_document(_LOOK), default=str))
    (topic,) = found["topics"]
    assert (topic["topic"], topic["groups"][0]["lag"], topic["change_status"]["late"]) == ("orders", 16, ["w1"])
    assert list(found["unreadable"]) == ["broken"]


class Watch:
    """A watch of paper."""

    problem, closed = "", False
    last = _LOOK

    def wait(self, turns: int, timeout: float) -> int:
        """No look is to come: the watch is closed when a second one is waited for."""
        self.closed = turns >= 1
        return 1


def asked(path: str, method: str = "GET", host: str = "localhost:8400") -> tuple[str, dict[str, str], bytes]:
    """Status, headers and content of an answer."""
    environ = {"PATH_INFO": path, "REQUEST_METHOD": method, "HTTP_HOST": host}
    setup_testing_defaults(environ)
    said: dict[str, object] = {}

    def start(status: str, headers: list[tuple[str, str]], *_: object) -> object:
        said.update(status=status, headers=dict(headers))
        return None

    content = b"".join(application(Watch(), look_document, 2.0)(environ, start))  # type: ignore[arg-type]
    return str(said["status"]), said["headers"], content  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("path", "method", "host", "expected"),
    [
        ("/", "GET", "localhost:8400", "200"),
        ("/", "GET", "127.0.0.1", "200"),
        ("/status.json", "GET", "localhost:8400", "200"),
        ("/events", "GET", "localhost:8400", "200"),
        ("/", "POST", "localhost:8400", "405"),
        ("/etc/passwd", "GET", "localhost:8400", "404"),
        ("/", "GET", "elsewhere.example:8400", "403"),
        ("/status.json", "GET", "localhost.elsewhere.example", "403"),
        ("/events", "GET", "", "403"),
    ],
)
def test_it_is_read_by_this_machine_and_by_no_other_name(path: str, method: str, host: str, expected: str) -> None:
    """A name that another site has given to this address is refused, and so is all but reading."""
    assert asked(path, method, host)[0].split()[0] == expected


def test_the_page_runs_its_own_script_and_nothing_else() -> None:
    """The policy lets only what has this answer's nonce run, and each answer has another one."""
    policies = []
    for _ in range(2):
        _, headers, content = asked("/")
        policies.append(headers["Content-Security-Policy"])
        (nonce,) = set(re.findall(r"nonce-([^']+)'", policies[-1]))
        assert re.findall(rb'<(?:script|style) nonce="([^"]+)">', content) == [nonce.encode()] * 2
        assert not re.search(rb"(?:style|onclick|href|src)=", content)
    assert policies[0] != policies[1]


def test_events_are_the_page_in_pieces() -> None:
    """One event is the whole of what changes; it ends with the watch."""
    _, headers, content = asked("/events")
    assert headers["Content-Type"] == "text/event-stream"
    events = content.decode().split("\n\n")
    assert events[0].startswith("data: ")
    assert "g &amp; &lt;b&gt;co" in events[0]


def events_of(port: int) -> Iterator[str]:
    """What a browser is sent."""
    connection = http.client.HTTPConnection("localhost", port, timeout=120)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    try:
        while line := answer.readline():
            if line.startswith(b"data: "):
                yield line[6:].decode()
    finally:
        connection.close()


def test_the_command_serves_what_the_cluster_is(kafka: KafkaUnderTest, topic_name: str) -> None:
    """A browser sees a growth without asking again; lag stands in the object; no setting shows; SIGTERM ends it."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 2)
    group = f"{topic_name}-g"
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(10):
            producer.produce(topic_name, str(i), str(i))
        producer.flush()
    config = {**kafka.client_config(), "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with OrderedConsumer(config) as consumer:
        consumer.subscribe([topic_name])
        got = 0
        while got < 10:
            got += len(consumer.consume(10 - got, 1.0))
        consumer.commit(asynchronous=False)
    with OrderedProducer(kafka.client_config()) as producer:
        for i in range(7):
            producer.produce(topic_name, str(i), str(i))
        producer.flush()

    words = ["status", "--bootstrap-server", kafka.bootstrap_servers, "--topic", topic_name, "--interval", "0.2"]
    words += ["--command-property", "sasl.password=hunter2", "--serve", "0", "--output", "json"]
    with subprocess.Popen([sys.executable, "-m", "keyorder", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            events = events_of(int(url.rstrip("/").rpartition(":")[2]))
            seen = next(each for each in events if f"<h2>{topic_name}</h2>" in each)
            assert "2 partitions, 2 at first, epoch" in seen
            grown = threading.Thread(target=admin.expand, args=(topic_name, 3))
            grown.start()
            seen = next(each for each in events if "3 partitions, 2 at first, epoch" in each)
            grown.join()
            with urllib.request.urlopen(f"{url}status.json", timeout=120) as answer:
                found = json.loads(answer.read())
            with urllib.request.urlopen(url, timeout=120) as answer:
                shown = answer.read().decode()
            (topic,) = found["topics"]
            assert [(g["group"], g["lag"]) for g in topic["groups"]] == [(group, 7)]
            assert group in shown
            assert "hunter2" not in shown + seen + json.dumps(found)
            events.close()  # type: ignore[attr-defined]
            process.terminate()
            assert process.wait(120) == 0
        finally:
            process.kill()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=120)


def test_a_port_that_is_taken_is_refused(kafka: KafkaUnderTest) -> None:
    """By the option's name; and one page or one terminal, not both."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for more, named in (
            (["--serve", str(taken.getsockname()[1])], "--serve"),
            (["--serve", "0", "--watch"], "--watch"),
        ):
            words = ["status", "--bootstrap-server", kafka.bootstrap_servers, *more, "--output", "json"]
            done = subprocess.run(
                [sys.executable, "-m", "keyorder", *words], capture_output=True, text=True, timeout=300, check=False
            )
            assert done.returncode == 2
            assert named in json.loads(done.stdout)["error"]["message"]
