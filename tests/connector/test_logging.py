"""What is written into the log, once and at which level."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector.consuming.gates.origins import LONG_S, OriginWatch
from keyorder.partitioner.gates.waits import Reason
from keyorder.partitioner.timeline import new_epoch
from support.cluster import ClusterSpec, KafkaUnderTest
from support.dumb import timeline_of
from support.holding import until
from support.logged import logged

GATE, ORIGIN = ("t", 4), ("t", 0)


@pytest.fixture
def watch(caplog: pytest.LogCaptureFixture) -> OriginWatch:
    """Without its thread: nothing is looked at."""
    caplog.set_level(logging.INFO, "keyorder")
    return OriginWatch({}, "g")


def test_a_gate_that_passes_by_itself_is_told_of_when_it_takes_long(
    watch: OriginWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, without a warning, and once more when it is open; a short wait is no news."""
    watch.report(GATE, ORIGIN, Reason.READING, "x", LONG_S - 1)
    watch.opened(GATE, LONG_S - 1)
    assert logged(caplog) == []
    for seconds in (LONG_S, LONG_S + 1):
        watch.report(GATE, ORIGIN, Reason.READING, "x", seconds)
    watch.opened(GATE, 12.0)
    watch.opened(GATE, 12.0)
    assert [(r.levelname, r.name) for r in logged(caplog)] == [("INFO", "keyorder.gates")] * 2
    assert "t[4]" in logged(caplog)[0].message
    assert "after 12.0 s" in logged(caplog)[1].message


def test_a_wedge_is_a_warning_at_once_and_for_each_reason(watch: OriginWatch, caplog: pytest.LogCaptureFixture) -> None:
    """The same reason again is no news, until something moved in between."""
    for reason in (Reason.NO_OWNER, Reason.NO_OWNER, Reason.STALLED, Reason.READING, Reason.STALLED):
        watch.report(GATE, ORIGIN, reason, "x", 1.0)
    assert [r.levelname for r in logged(caplog)] == ["WARNING"] * 3


def test_a_new_epoch_says_from_where_to_where_and_how_long_records_were_held() -> None:
    """The hold is left out where its controller has not told it."""
    before, after = timeline_of(4, []), timeline_of(4, [(6, {0: 1, 1: 1}, {4: 0, 5: 0})])
    assert new_epoch(after, before) == "t: epoch 1 is in force, 4 to 6 partitions"


def test_what_other_threads_log_is_not_of_the_test(watch: OriginWatch, caplog: pytest.LogCaptureFixture) -> None:
    """A client that another test left open goes on to log that it finds no broker."""
    thread = threading.Thread(target=logging.getLogger("keyorder.librdkafka").error, args=("Connection refused",))
    thread.start()
    thread.join()
    watch.report(GATE, ORIGIN, Reason.NO_OWNER, "x", 1.0)
    assert [record.name for record in logged(caplog)] == ["keyorder.gates"]
    assert len(caplog.records) == 2


class _OfRequests(logging.Handler):
    """As one whose filter needs a request that is being served: it raises on every other thread. heard: (logger, thread)."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: set[tuple[str, str]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        thread = threading.current_thread()
        if thread is not threading.main_thread():
            self.heard.add((record.name, thread.name))
            raise RuntimeError("working outside of request context")
        return False


@pytest.fixture
def of_requests(caplog: pytest.LogCaptureFixture) -> Iterator[_OfRequests]:
    """One that the application has set up."""
    caplog.set_level(logging.INFO, "keyorder")
    handler = _OfRequests()
    logging.getLogger("keyorder").addHandler(handler)
    yield handler
    logging.getLogger("keyorder").removeHandler(handler)


def test_a_handler_that_raises_stops_no_client_of_the_process(
    start_kafka: Callable[[ClusterSpec], KafkaUnderTest], of_requests: _OfRequests, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the client library logs comes out of poll(), on the threads that all clients share."""
    kafka = start_kafka(ClusterSpec(1, {}, {"broker.session.timeout.ms": "6000"}))
    try:
        TopicAdmin(kafka.client_config()).create("t", 1)
        with OrderedProducer(kafka.client_config()) as producer:
            producer.produce("t", b"before", b"k")
            assert producer.flush(120) == 0
            kafka.kill_broker(1)
            until(lambda: ("keyorder.librdkafka", "keyorder-link") in of_requests.heard)
            kafka.start_broker(1)
            producer.produce("t", b"after", b"k")
            assert producer.flush(120) == 0
            TopicAdmin(kafka.client_config()).expand("t", 2)
    finally:
        kafka.stop()
    assert "working outside of request context" in capfd.readouterr().err


def test_a_handler_that_raises_stops_no_writer(
    kafka: KafkaUnderTest, topic_name: str, of_requests: _OfRequests
) -> None:
    """That of a new epoch is a line of the producer's own thread."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)
    with OrderedProducer(kafka.client_config()) as producer:
        producer.produce(topic_name, b"before", b"k")
        assert admin.expand(topic_name, 2).changed
        until(lambda: ("keyorder.producer", "keyorder-writer") in of_requests.heard)
        producer.produce(topic_name, b"after", b"k")
        assert producer.flush(120) == 0
        assert admin.expand(topic_name, 3).changed


def test_a_handler_that_raises_stops_no_reader(
    kafka: KafkaUnderTest, topic_name: str, of_requests: _OfRequests
) -> None:
    """The thread that follows the timelines tells of each new epoch."""
    admin = TopicAdmin(kafka.client_config())
    admin.create(topic_name, 1)
    values: list[bytes | None] = []
    config = {**kafka.client_config(), "group.id": topic_name, "auto.offset.reset": "earliest"}
    with OrderedProducer(kafka.client_config()) as producer, closing(OrderedConsumer(config)) as consumer:
        consumer.subscribe([topic_name])

        def read(count: int) -> None:
            until(lambda: values.extend(m.value() for m in consumer.consume(100, 0.1)) or len(values) >= count)

        for number, partitions in enumerate((2, 3, 4), start=1):
            producer.produce(topic_name, b"%d" % number, b"k")
            assert producer.flush(120) == 0
            read(number)
            assert admin.expand(topic_name, partitions).changed
            until(lambda: any(name == "keyorder.consumer" for name, _ in of_requests.heard))
    assert values == [b"1", b"2", b"3"]
