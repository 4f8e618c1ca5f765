"""Calls that make no sense, calls of clients that are closed, and with-blocks: no broker is needed, and none is there."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.connector import admin_link, clock, group_commits, log_offsets

NOWHERE = {"bootstrap.servers": "localhost:1", "log_level": 0}
PRODUCERS = pytest.mark.parametrize("kind", [Producer, OrderedProducer], ids=["stock", "ordered"])
CONSUMERS = pytest.mark.parametrize("kind", [Consumer, OrderedConsumer], ids=["stock", "ordered"])
PLACE = TopicPartition("t", 0, 1)

AFTER_CLOSE: dict[str, Callable[[Any], object]] = {
    "subscribe": lambda c: c.subscribe(["t"]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "poll": lambda c: c.poll(0),
    "consume": lambda c: c.consume(1, 0),
    "assign": lambda c: c.assign([PLACE]),
    "unassign": lambda c: c.unassign(),
    "incremental_assign": lambda c: c.incremental_assign([PLACE]),
    "incremental_unassign": lambda c: c.incremental_unassign([PLACE]),
    "assignment": lambda c: c.assignment(),
    "store_offsets": lambda c: c.store_offsets(offsets=[PLACE]),
    "commit": lambda c: c.commit(asynchronous=False),
    "committed": lambda c: c.committed([PLACE], 1),
    "position": lambda c: c.position([PLACE]),
    "pause": lambda c: c.pause([PLACE]),
    "resume": lambda c: c.resume([PLACE]),
    "seek": lambda c: c.seek(PLACE),
    "get_watermark_offsets": lambda c: c.get_watermark_offsets(PLACE, timeout=1),
    "offsets_for_times": lambda c: c.offsets_for_times([PLACE], timeout=1),
    "list_topics": lambda c: c.list_topics(timeout=1),
    "cluster_id": lambda c: c.cluster_id(1),
    "memberid": lambda c: c.memberid(),
    "consumer_group_metadata": lambda c: c.consumer_group_metadata(),
}
TWICE = TopicPartition("twice", 0)
# What the library's own client crashes at, before 2.16.
OLD = tuple(map(int, confluent_kafka.__version__.split(".")[:2])) < (2, 16)
ENDS_THE_PROCESS = {"pause", "resume"} if OLD else set()
WRONG: dict[str, tuple[type[Exception], Callable[[Any], object]]] = {
    "consume-fewer-than-none": (ValueError, lambda c: c.consume(-1, 0)),
    "consume-too-many": (ValueError, lambda c: c.consume(1_000_001, 0)),
    "subscribe-a-string": (TypeError, lambda c: c.subscribe("t")),
    "subscribe-a-callback-that-is-none": (TypeError, lambda c: c.subscribe(["t"], on_assign="f")),
    "assign-a-place-alone": (TypeError, lambda c: c.assign(PLACE)),
    "assign-strings": (TypeError, lambda c: c.assign(["t"])),
    "pause-strings": (TypeError, lambda c: c.pause(["t"])),
    "resume-strings": (TypeError, lambda c: c.resume(["t"])),
    "incremental-assign-strings": (TypeError, lambda c: c.incremental_assign(["t"])),
    "incremental-unassign-strings": (TypeError, lambda c: c.incremental_unassign(["t"])),
    "seek-a-string": (TypeError, lambda c: c.seek("t")),
    "commit-a-string": (TypeError, lambda c: c.commit("t")),
    "commit-offsets-of-a-string": (TypeError, lambda c: c.commit(offsets="t")),
    "commit-a-tuple": (TypeError, lambda c: c.commit(offsets=(PLACE,))),
    "store-a-string": (TypeError, lambda c: c.store_offsets("t")),
    "store-strings": (TypeError, lambda c: c.store_offsets(offsets=["t"])),
    "assign-twice": (KafkaException, lambda c: c.assign([TWICE, TWICE])),
    "incremental-assign-twice": (KafkaException, lambda c: c.incremental_assign([TWICE, TWICE])),
    "subscribe-to-no-name": (KafkaException, lambda c: c.subscribe([""])),
    "committed-strings": (TypeError, lambda c: c.committed(["t"], 1)),
    "position-strings": (TypeError, lambda c: c.position(["t"])),
    "unknown-argument": (TypeError, lambda c: c.poll(wait=1)),
}


def consumer_of(kind: Any) -> Any:
    return kind({**NOWHERE, "group.id": "g", "enable.auto.offset.store": False})


@pytest.fixture(scope="module", params=[Consumer, OrderedConsumer], ids=["stock", "ordered"])
def closed(request: pytest.FixtureRequest) -> Any:
    """A consumer that was closed, twice."""
    made = consumer_of(request.param)
    made.close()
    made.close()
    return made


@pytest.fixture(scope="module", params=[Consumer, OrderedConsumer], ids=["stock", "ordered"])
def opened(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A consumer that was only made."""
    made = consumer_of(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("name", list(AFTER_CLOSE))
def test_a_closed_consumer_says_so(closed: Any, name: str) -> None:
    if type(closed) is Consumer and (name in ENDS_THE_PROCESS or not hasattr(closed, name)):
        pytest.skip("confluent-kafka before 2.16 crashes here, or has no such call")
    with pytest.raises(RuntimeError, match="closed"):
        AFTER_CLOSE[name](closed)


@pytest.mark.parametrize("name", list(WRONG))
def test_arguments_that_make_no_sense(opened: Any, name: str) -> None:
    error, call = WRONG[name]
    with pytest.raises(error):
        call(opened)


def test_names_of_topics_are_made_text(opened: Any) -> None:
    """As the client library does: whatever the list holds."""
    opened.subscribe([1])
    opened.unsubscribe()


@pytest.mark.parametrize("name", ["list_topics", "cluster_id"])
def test_what_both_clients_have_is_closed_in_other_words(closed: Any, name: str) -> None:
    """Of a producer and a consumer alike; also of one whose base was never set up."""
    kind = type(closed)
    if kind is Consumer and (name in ENDS_THE_PROCESS or not hasattr(closed, name)):
        pytest.skip("confluent-kafka before 2.16 has no such call")
    with pytest.raises(RuntimeError, match="Handle has been closed"):
        AFTER_CLOSE[name](closed)
    if not (OLD and kind is Consumer):
        with pytest.raises(RuntimeError, match="Handle has been closed"):
            AFTER_CLOSE[name](type("Sub", (kind,), {"__init__": lambda self: None})())


def test_a_place_of_which_the_client_has_never_heard_is_unknown(opened: Any) -> None:
    """To store its offset is refused so before any metadata are there."""
    for call in (
        lambda: opened.store_offsets(offsets=[PLACE]),
        lambda: opened.store_offsets(message=Message(topic="t", partition=0)),
        lambda: opened.seek(TopicPartition("never-heard-of", 0, 1)),
    ):
        with pytest.raises(KafkaException) as raised:
            call()
        assert raised.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


@pytest.mark.slow
@CONSUMERS
def test_a_message_without_an_offset_stores_nothing(kind: Any) -> None:
    """And one that is an error is refused, in the library's words."""
    consumer = consumer_of(kind)
    consumer.assign([PLACE])
    message = Message(topic="t", partition=0)
    consumer.store_offsets(message=message)
    consumer.store_offsets(message)
    with pytest.raises(KafkaException) as raised:
        consumer.commit(message=message, asynchronous=False)
    assert raised.value.args[0].code() == KafkaError._NO_OFFSET
    broken = Message(topic="t", partition=0, offset=2, error=KafkaError(KafkaError._TRANSPORT, "gone"))
    for what in ("commit", "store_offsets"):
        words = f"Cannot {what.partition('_')[0]} offsets for message with error: 'gone'"
        with pytest.raises(KafkaException, match=words) as raised:
            getattr(consumer, what)(broken)
        assert raised.value.args[0].code() == KafkaError._INVALID_ARG
    with pytest.raises(KafkaException) as raised:
        consumer.store_offsets(offsets=[TopicPartition("t", 1, 5)])
    assert raised.value.args[0].code() == KafkaError._STATE
    consumer.close()


class Raising:
    """A consumer whose error_cb raises, and how often it was called. Nobody answers: each address of the broker is an event."""

    def __init__(self, kind: Any) -> None:
        self.count = 0
        self.consumer = kind({**NOWHERE, "group.id": "g", "error_cb": self.raises})
        self.consumer.subscribe(["t"])
        with pytest.raises(KafkaException):
            self.consumer.get_watermark_offsets(PLACE, timeout=3)  # serves no callbacks: what has come meanwhile waits

    def raises(self, _: KafkaError) -> None:
        self.count += 1
        raise ValueError(f"number {self.count}")


@pytest.mark.slow
@CONSUMERS
def test_of_what_an_error_cb_raises_a_call_raises_one(kind: Any) -> None:
    """The last. The program has heard of it: our close() raises no other of the kind, the library's own might."""
    made = Raising(kind)
    with pytest.raises(ValueError, match=r"number \d+") as raised:
        made.consumer.consume(1, 1)
    assert str(raised.value) == f"number {made.count}"
    with nullcontext() if kind is OrderedConsumer else suppress(ValueError):
        made.consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        made.consumer.poll(0)


@pytest.mark.slow
@CONSUMERS
def test_what_an_error_cb_raises_in_close_for_the_first_time_goes_out_of_it(kind: Any) -> None:
    """The last of them, and the consumer is closed."""
    made = Raising(kind)
    with pytest.raises(ValueError, match=r"number \d+") as raised:
        made.consumer.close()
    assert str(raised.value) == f"number {made.count}"
    made.consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        made.consumer.poll(0)


def test_nothing_is_assigned_before_anything_was_asked_for(opened: Any) -> None:
    assert opened.assignment() == []
    assert opened.poll(0) is None
    assert opened.consume(1, 0) == []


@CONSUMERS
def test_a_consumer_in_a_with_block(kind: Any) -> None:
    """Closed at its end, also by an exception, which goes on."""
    with consumer_of(kind) as consumer:
        assert consumer.assignment() == []
    with pytest.raises(RuntimeError):
        consumer.poll(0)
    with pytest.raises(KeyError), consumer_of(kind) as consumer:
        raise KeyError
    with pytest.raises(RuntimeError):
        consumer.poll(0)


@PRODUCERS
def test_a_producer_in_a_with_block(kind: Any) -> None:
    with kind(NOWHERE) as producer:
        assert bool(producer)
    with pytest.raises(RuntimeError):
        producer.produce("t", b"v")
    with pytest.raises(KeyError), kind(NOWHERE) as producer:
        raise KeyError
    with pytest.raises(RuntimeError):
        producer.produce("t", b"v")


@PRODUCERS
@pytest.mark.parametrize("messages", ["text", None, {"value": b"v"}, [b"v"], [None]], ids=str)
def test_a_batch_that_is_none(kind: Any, messages: Any) -> None:
    with kind(NOWHERE) as producer, pytest.raises(TypeError):
        producer.produce_batch("t", messages)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"value": b"good"}, "not a dict"], "Message at index 1 must be a dict"),
        ([{"value": b"good"}, {"value": 1}], "Message value at index 1 must be bytes or str"),
        ([{"key": ["k"]}], "Message key at index 0 must be bytes or str"),
        ([{"value": b"good"}, {"partition": "0"}], "Message partition at index 1 must be int"),
        ([{"value": b"good"}, {"key": bytearray(b"k")}], "Message key at index 1 must be bytes or str"),
        ([{"value": b"good"}, {"value": bytearray(b"v")}], "Message value at index 1 must be bytes or str"),
        ([{"value": b"good"}, {"value": memoryview(b"v")}], "Message value at index 1 must be bytes or str"),
        *(
            ([{"value": b"good"}, {"value": b"bad", "headers": headers}], "Invalid headers at index 1")
            for headers in (5, "ab", {"a": 5}, (("a", "b"),), [["a", "b"]], [("a",)], [("a", bytearray(b"b"))])
        ),
        ({"value": b"good"}, "messages must be a list"),
    ],
)
@PRODUCERS
def test_a_batch_with_one_that_cannot_be_sent(kind: Any, messages: Any, words: str) -> None:
    """It is named, and none of the batch is sent."""
    heard: list[Any] = []
    producer = kind(NOWHERE)
    with pytest.raises(ValueError if "headers" in words else TypeError, match=words):
        producer.produce_batch("t", messages, on_delivery=lambda *report: heard.append(report))
    producer.purge()
    producer.poll(0)
    assert heard == []
    producer.close()


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ({"timestamp": "now"}, TypeError, "Message timestamp at index 1 must be int"),
        ({"timestamp": 2**63}, ValueError, "Message timestamp at index 1 is out of range"),
        ({"headers": {5: "a"}}, ValueError, "Invalid headers at index 1"),
        ({"headers": {"a": "\ud800"}}, UnicodeEncodeError, "surrogates"),
        ({"key": "\ud800"}, UnicodeEncodeError, "surrogates"),
        ({"value": "\ud800"}, UnicodeEncodeError, "surrogates"),
    ],
)
def test_what_else_a_batch_is_asked_before_any_of_it_is_sent(bad: Any, error: type[Exception], words: str) -> None:
    """What the library does not take in a batch, or finds out when some are sent: here it would be a batch sent in half."""
    with OrderedProducer(NOWHERE) as producer, pytest.raises(error, match=words):
        producer.produce_batch("t", [{"value": b"good"}, {"value": b"v", **bad}])


# What a program may call on a client whose base was never set up, and what it is told.
NEVER_MADE: list[tuple[Any, Any, Callable[[Any], object]]] = [
    *((Producer, OrderedProducer, call) for call in (
        lambda c: c.produce("t"), lambda c: c.produce_batch("t", [{}]), lambda c: c.poll(), lambda c: c.flush(),
        lambda c: c.purge(),
        lambda c: c.init_transactions(), lambda c: c.begin_transaction(), lambda c: c.commit_transaction(),
        lambda c: c.abort_transaction(), lambda c: c.send_offsets_to_transaction([], None), lambda c: c.list_topics(),
        lambda c: c.cluster_id(), lambda c: c.set_sasl_credentials("u", "p"),
    )),
    *((Consumer, OrderedConsumer, call) for call in AFTER_CLOSE.values()),
    (Consumer, OrderedConsumer, lambda c: c.set_sasl_credentials("u", "p")),
]  # fmt: skip


@pytest.mark.parametrize("ours", [False, True], ids=["stock", "ordered"])
@pytest.mark.parametrize("case", NEVER_MADE)
def test_a_subclass_that_never_calls_the_base(case: tuple[Any, Any, Callable[[Any], object]], ours: bool) -> None:
    """A RuntimeError, whatever is called."""
    if OLD and not ours:
        pytest.skip("confluent-kafka before 2.16 crashes at most of these")
    stock, ordered, call = case
    made = type("Sub", (ordered if ours else stock,), {"__init__": lambda self: None})()
    with pytest.raises(RuntimeError):
        call(made)
    assert not hasattr(made, "_something_of_the_applications_own")
    assert not hasattr(made, "no_method")


@PRODUCERS
def test_a_producer_that_never_calls_the_base_has_nothing_queued(kind: Any) -> None:
    """As one that is closed."""
    assert len(type("Sub", (kind,), {"__init__": lambda self: None})()) == 0


@CONSUMERS
def test_a_consumer_that_never_calls_the_base_may_be_closed(kind: Any) -> None:
    """There is nothing to close."""
    type("Sub", (kind,), {"__init__": lambda self: None})().close()


@PRODUCERS
def test_an_empty_batch(kind: Any) -> None:
    with kind(NOWHERE) as producer:
        assert producer.produce_batch("t", []) == 0


@pytest.mark.parametrize("kind", [Producer, OrderedProducer, Consumer, OrderedConsumer])
@pytest.mark.parametrize("arguments", [(), (None,)], ids=str)
def test_no_settings_at_all(kind: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        kind(*arguments)


@CONSUMERS
@pytest.mark.parametrize("kind_of_call", ["names", "a-dict-and-names"])
def test_settings_as_names_alone(kind: Any, kind_of_call: str) -> None:
    config = {**NOWHERE, "group.id": "g"}
    made = kind(**config) if kind_of_call == "names" else kind({}, **config)
    made.close()


@pytest.mark.parametrize(
    ("kinds", "config", "words"),
    [
        ((Consumer, OrderedConsumer), {}, "group.id must be set"),
        (
            (Producer, OrderedProducer),
            {"partitioner": "murmur"},
            'Invalid value for configuration property "partitioner": murmur',
        ),
    ],
    ids=["group.id", "partitioner"],
)
@pytest.mark.parametrize("ours", [False, True], ids=["stock", "ordered"])
def test_settings_are_refused_in_the_librarys_words(kinds: Any, config: dict[str, Any], words: str, ours: bool) -> None:
    """Where both refuse one for the same reason: a ValueError or a KafkaException, as there."""
    with pytest.raises(ValueError if Consumer in kinds else KafkaException, match=words):
        kinds[ours]({**NOWHERE, **config})


@CONSUMERS
@pytest.mark.parametrize(
    "config", [{}, {"group.id": "g", "no.such.setting": 1}, {"group.id": 5, "error_cb": 1}], ids=str
)
def test_settings_that_cannot_be(kind: Any, config: dict[str, Any]) -> None:
    """As an exception of the library's family, or a TypeError."""
    with pytest.raises((KafkaException, TypeError, ValueError)):
        kind({**NOWHERE, **config})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Producer, OrderedProducer, Consumer, OrderedConsumer])
def test_a_token_is_asked_for_once(kind: Any) -> None:
    """However many connections to the cluster a client has."""
    asked: list[str] = []

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", clock.wall_ms() / 1000 + 300

    config = {
        **NOWHERE,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.config": "of-the-application",
        "oauth_cb": token,
    }
    made = kind(config) if issubclass(kind, Producer) else kind({**config, "group.id": "g"})
    assert asked == ["of-the-application"]
    made.close()
    assert asked == ["of-the-application"]


@pytest.mark.parametrize(
    ("named", "waits"),
    [
        ({"async": False}, True),
        ({"async": True}, False),
        ({"async": False, "asynchronous": True}, False),
        ({"async": True, "asynchronous": False}, True),
        ({}, False),
    ],
)
@CONSUMERS
def test_the_older_name_of_asynchronous(kind: Any, named: dict[str, bool], waits: bool) -> None:
    """`async`: with nothing to commit a synchronous commit raises, an asynchronous one does not."""
    consumer = consumer_of(kind)
    if waits:
        with pytest.raises(KafkaException) as raised:
            consumer.commit(**named)
        assert raised.value.args[0].code() == KafkaError._NO_OFFSET
    else:
        assert consumer.commit(**named) is None
    with pytest.raises(TypeError):
        consumer.commit(synchronous=True)
    consumer.close()


def test_a_consumer_is_made_of_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an `oauth_cb` each client is a second of the constructor's: a token of three seconds was renewed meanwhile."""
    made: list[str] = []
    real = {
        "group_commits": group_commits.Consumer,
        "admin_link": admin_link.ClusterAdmin,
        "log_offsets": log_offsets.Consumer,
    }
    for module, name in ((group_commits, "Consumer"), (admin_link, "ClusterAdmin"), (log_offsets, "Consumer")):
        where = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, name, lambda *a, where=where, **k: (made.append(where), real[where](*a, **k))[1])
    # A connection of its own: what clients of one connection share may have been made by another test's.
    consumer = OrderedConsumer({**NOWHERE, "bootstrap.servers": "localhost:2", "group.id": "g"})
    assert made == []
    with pytest.raises(KafkaException):
        consumer.list_topics(timeout=0.1)
    assert made == ["admin_link"]
    consumer.close()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [Producer, OrderedProducer, Consumer, OrderedConsumer])
def test_a_client_that_could_not_be_made(kind: Any) -> None:
    """The exception is all that is told, also when what there is of the client is freed."""
    with pytest.raises((KafkaException, TypeError)):
        kind({**NOWHERE, "group.id": "g", "no.such.setting": 1})
    gc.collect()


# Interrupts itself thirty times, each time in poll(). Statistics make the library call back all the time.
INTERRUPTED = """
import collections, json, os, signal, sys, threading
from keyorder import OrderedConsumer, OrderedProducer

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs tests in the background has it ignored
kind, config = {"OrderedProducer": OrderedProducer, "OrderedConsumer": OrderedConsumer}[sys.argv[1]], json.loads(sys.argv[2])
client = kind({**config, "statistics.interval.ms": 1, "stats_cb": lambda text: None})
inside = threading.Event()

def interrupt():
    while inside.wait():
        inside.clear()
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
came = collections.Counter()
while came.total() < 30:
    try:
        inside.set()
        while True:
            client.poll(0.2)
    except BaseException as error:
        came[type(error).__name__] += 1
client.close()
print(json.dumps(came))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [OrderedProducer, OrderedConsumer])
def test_an_interrupt_in_poll_is_a_keyboard_interrupt(kind: Any) -> None:
    """Also when it comes right before the library calls back: its own client raises SystemError then."""
    config = NOWHERE if kind is OrderedProducer else {**NOWHERE, "group.id": "g"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", INTERRUPTED, kind.__name__, json.dumps(config)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == {"KeyboardInterrupt": 30}


@pytest.mark.parametrize("name", [5, None, b"client.id"])
@pytest.mark.parametrize("kind", [Producer, OrderedProducer, Consumer, OrderedConsumer])
def test_a_setting_whose_name_is_no_text(kind: Any, name: Any) -> None:
    """It is unknown, and named."""
    with pytest.raises(KafkaException, match="No such configuration property") as raised:
        kind({**NOWHERE, "group.id": "g", name: 3} if "Consumer" in kind.__name__ else {**NOWHERE, name: 3})
    assert str(name) in raised.value.args[0].str()
