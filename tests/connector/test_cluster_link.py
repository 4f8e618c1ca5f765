"""One link to a cluster for all clients of a process: who shares it, when it ends; one user's trouble is not another's."""

from __future__ import annotations

import gc
import linecache
import logging
import os
import re
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic
from keyorder import OrderedConsumer, OrderedProducer, TopicAdmin
from keyorder.connector import clock
from keyorder.connector.control.control_reader import ControlMessage, Look
from keyorder.connector.link import ClusterLink, ControlSubscription, cluster_link, control_feed
from keyorder.connector.link.cluster_link import _identity, _registry
from keyorder.connector.link.control_writer import ControlWriter
from keyorder.partitioner.errors import BrokerUnreachableError, KeyorderError
from support.cluster import ClusterSpec, KafkaUnderTest
from support.holding import until

SECRET = "first-secret"


EARLIER: set[threading.Thread] = set()


def reading() -> set[threading.Thread]:
    """The links' threads."""
    return {thread for thread in threading.enumerate() if thread.name == "keyorder-link"}


def links() -> int:
    """How many links this test has."""
    return len(reading() - EARLIER)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is shared with clients that an earlier test of this process has left behind."""
    monkeypatch.setitem(cluster_link._REGISTRIES, os.getpid(), cluster_link._Registry())
    EARLIER.update(reading())
    yield
    gc.collect()
    until(lambda: links() == 0)
    EARLIER.clear()


def topic_of(kafka: KafkaUnderTest, name: str, partitions: int = 1) -> Producer:
    """A topic with some name, as a control topic is; and a producer."""
    admin = kafka.admin()  # dropped, it would never answer
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return Producer(kafka.client_config())


def write(producer: Producer, topic: str, value: bytes, partition: int = 0, key: bytes = b"lease:k") -> None:
    producer.produce(topic, value, key, partition)
    assert producer.flush(60) == 0


def values(subscription: ControlSubscription, count: int) -> list[bytes | None]:
    """What comes next."""
    found: list[ControlMessage] = []
    until(lambda: found.extend(subscription.poll(0.05)) or len(found) >= count)
    return [message.value for message in found]


def everything(_: bytes) -> bool:
    return True


def test_consumers_and_producers_of_a_process_share_one_link(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """It survives any of them, and ends with the last, whichever that is."""
    config = kafka.client_config()
    TopicAdmin(config).create(topic_name, 1)
    producer = OrderedProducer(config)
    consumers = [
        OrderedConsumer(
            {**config, "group.id": f"{topic_name}-{n}", "auto.offset.reset": "earliest", "client.id": f"c{n}"}
        )
        for n in range(3)
    ]
    producer.produce(topic_name, b"0", b"k")
    assert producer.flush(60) == 0
    for consumer in consumers:
        consumer.subscribe([topic_name])
        assert [m.value() for m in consumer.consume(1, 60)] == [b"0"]
    assert links() == 1

    consumers.pop(0).close()
    producer.close()
    assert links() == 1
    with OrderedProducer(config) as another:
        another.produce(topic_name, b"1", b"k")
        assert another.flush(60) == 0
    for consumer in consumers:
        assert [m.value() for m in consumer.consume(1, 60)] == [b"1"]
        consumer.close()
    assert links() == 0


def test_clients_that_are_dropped_count_as_gone(kafka: KafkaUnderTest, topic_name: str, alone: None) -> None:
    """Neither was closed."""
    config = kafka.client_config()
    TopicAdmin(config).create(topic_name, 1)
    consumer: Any = OrderedConsumer({**config, "group.id": topic_name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic_name])
    producer: Any = OrderedProducer(config)
    producer.produce(topic_name, b"0", b"k")
    assert producer.flush(60) == 0
    assert len(consumer.consume(1, 60)) == 1
    assert links() == 1

    del consumer, producer
    gc.collect()
    until(lambda: links() == 0)


def test_other_settings_are_another_link(kafka: KafkaUnderTest, topic_name: str, alone: None) -> None:
    """Clients are shared by those alone whose settings reach the same cluster as the same user.

    Neither its name nor its rack is one: control topics are read from their leaders, whose ends are asked for.
    """
    producer = topic_of(kafka, topic_name)
    config = kafka.client_config()
    same, other = (
        ClusterLink({**config, "client.id": "x", "client.rack": "r"}),
        ClusterLink({**config, "socket.keepalive.enable": True}),
    )
    first = ClusterLink(config)
    try:
        assert first.offsets is same.offsets
        assert first.offsets is not other.offsets
        read = [link.subscribe(everything) for link in (first, same, other)]
        for subscription in read:
            subscription.add([(topic_name, 0)])
        assert links() == 2
        write(producer, topic_name, b"v")
        assert [values(subscription, 1) for subscription in read] == [[b"v"]] * 3
        other.close()
        assert links() == 1
    finally:
        for link in (first, same, other):
            link.close()
            link.close()


def test_a_late_reader_gets_the_newest_of_each_key_and_all_that_follows(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """As if it had read the slot from its beginning through a log cleaner."""
    producer = topic_of(kafka, topic_name, 2)
    link = ClusterLink(kafka.client_config())
    early, late = link.subscribe(everything), link.subscribe(lambda key: key != b"lease:other")
    for n in range(3):
        write(producer, topic_name, b"old%d" % n)
    early.add([(topic_name, 0)])
    assert values(early, 1) == [b"old2"]
    write(producer, topic_name, b"gone", key=b"lease:gone")
    write(producer, topic_name, b"other", key=b"lease:other")
    producer.produce(topic_name, None, b"lease:gone", 0)
    write(producer, topic_name, b"new")
    assert values(early, 4) == [b"gone", b"other", None, b"new"]
    late.add([(topic_name, 0)])
    assert values(late, 1) == [b"new"]

    # A slot that is new to a fetch which waits at the broker: its records do not wait for that fetch.
    late.add([(topic_name, 1)])
    write(producer, topic_name, b"there", 1)
    write(producer, topic_name, b"newer")
    assert sorted(values(late, 2), key=str) == [b"newer", b"there"]
    assert values(early, 1) == [b"newer"]
    for subscription in (early, late):
        look = subscription.look([(topic_name, 0)])
        until(lambda s=subscription, look=look: s.reached(look) or s.pass_markers(look) != [] or s.reached(look))  # type: ignore[misc]
    link.close()


def test_a_look_is_never_older_than_its_question(kafka: KafkaUnderTest, topic_name: str, alone: None) -> None:
    """An answer serves several who ask, and only those whose question it is young enough for."""
    producer = topic_of(kafka, topic_name)
    link = ClusterLink(kafka.client_config())
    one, two = link.subscribe(everything), link.subscribe(everything)
    for subscription in (one, two):
        subscription.add([(topic_name, 0)])
    first = one.look()
    assert two.look(since=first.began) == first

    write(producer, topic_name, b"v")
    now = clock.now()
    second = two.look()
    assert second.began >= now
    assert second.ends == {(topic_name, 0): 1}
    link.close()


def test_one_question_serves_all_and_needs_the_admin_client_alone(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """Of all slots that somebody follows, so that they who follow others need not ask. Clients that list offsets can close."""
    producer = topic_of(kafka, topic_name, 2)
    link = ClusterLink(kafka.client_config())
    one, two = link.subscribe(everything), link.subscribe(everything)
    for partition, subscription in enumerate((one, two)):
        subscription.add([(topic_name, partition)])
        write(producer, topic_name, b"v", partition)
        assert values(subscription, 1) == [b"v"]
    until(lambda: all(each.covered for each in link._clients.feed._slots.values()))
    looks: list[Look] = []

    def without_the_others() -> bool:  # not at once where the machine is busy: each asks for its own then
        link.offsets.close()
        looks.append(one.look())
        return not link.offsets._idle

    until(without_the_others)
    second = two.look(since=looks[-1].began)
    assert (looks[-1].ends, second.ends) == ({(topic_name, 0): 1}, {(topic_name, 1): 1})
    assert second.began == looks[-1].began
    link.close()


def test_one_readers_missing_topic_is_no_other_readers_trouble(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """It is told to whoever asked."""
    producer = topic_of(kafka, topic_name)
    link = ClusterLink(kafka.client_config())
    good, bad = link.subscribe(everything), link.subscribe(everything)
    good.add([(topic_name, 0)])
    failed: list[KeyorderError] = []

    def ask() -> None:
        try:
            bad.add([(f"{topic_name}-not-there", 0)])
        except KeyorderError as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    for n in range(3):
        write(producer, topic_name, b"%d" % n)
        look = good.look()
        found: list[ControlMessage] = []
        until(lambda found=found, look=look: found.extend(good.poll(0.02)) or good.reached(look))  # type: ignore[misc]
        assert [message.value for message in found] == [b"%d" % n]
    asking.join(90)
    assert len(failed) == 1
    assert bad.poll(0) == []
    link.close()


def test_a_forked_child_makes_its_own(kafka: KafkaUnderTest, topic_name: str, alone: None) -> None:
    """The parent's go on; in the child they are left alone."""
    producer = topic_of(kafka, topic_name)
    link = ClusterLink(kafka.client_config())
    subscription = link.subscribe(everything)
    subscription.add([(topic_name, 0)])
    write(producer, topic_name, b"before")
    assert values(subscription, 1) == [b"before"]

    child = os.fork()
    if child == 0:
        signal.alarm(60)
        status = 1
        try:
            link.close()
            own = ClusterLink(kafka.client_config())
            reading = own.subscribe(everything)
            reading.add([(topic_name, 0)])
            status = 0 if values(reading, 1) == [b"before"] and own.offsets is not link.offsets else 2
            own.close()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0

    write(producer, topic_name, b"after")
    assert values(subscription, 1) == [b"after"]
    link.close()


def test_a_link_survives_its_brokers(start_kafka: Callable[[ClusterSpec], KafkaUnderTest], alone: None) -> None:
    """Readers get what was written after the brokers came back."""
    kafka = start_kafka(ClusterSpec(1, {}, {"broker.session.timeout.ms": "6000"}))
    try:
        producer = topic_of(kafka, "slots", 2)
        link = ClusterLink(kafka.client_config())
        subscription = link.subscribe(everything)
        subscription.add([("slots", 0)])
        write(producer, "slots", b"before")
        assert values(subscription, 1) == [b"before"]

        kafka.kill_broker(1)
        kafka.start_broker(1)
        write(producer, "slots", b"after")
        assert values(subscription, 1) == [b"after"]
        write(producer, "slots", b"new", 1)

        def added() -> bool:
            try:
                subscription.add([("slots", 1)])
            except BrokerUnreachableError:
                return False
            return True

        until(added)
        assert values(subscription, 1) == [b"new"]
        link.close()
    finally:
        kafka.stop()


def test_new_credentials_are_those_of_one_user(
    start_kafka: Callable[[ClusterSpec], KafkaUnderTest], alone: None
) -> None:
    """It goes on where it was, with clients that log in by them; who shared its link keeps the old ones, and reads on."""
    kafka = start_kafka(ClusterSpec(1, {"root": SECRET}))
    try:
        producer = topic_of(kafka, "slots")
        config = kafka.client_config()
        one, two = ClusterLink(config), ClusterLink(config)
        reading, other = one.subscribe(everything), two.subscribe(everything)
        for subscription in (reading, other):
            subscription.add([("slots", 0)])
        write(producer, "slots", b"a")
        assert values(reading, 1) == [b"a"]

        one.set_sasl_credentials(config["sasl.username"], "wrong")  # nothing can be read by these: it stays where it is
        assert one.offsets is not two.offsets
        reading._not_before = float("inf")
        write(producer, "slots", b"b")
        assert values(reading, 1) == [b"b"]
        with pytest.raises(KeyorderError):
            one.offsets.stable_ends([("slots", 0)], 1.0)
        assert two.offsets.stable_ends([("slots", 0)]) == {("slots", 0): 2}

        write(producer, "slots", b"c", key=b"lease:another")
        one.set_sasl_credentials(config["sasl.username"], SECRET)
        assert one.offsets is two.offsets
        write(producer, "slots", b"d")
        assert values(reading, 2) == [b"c", b"d"]
        assert values(other, 4) == [b"a", b"b", b"c", b"d"]
        one.close()
        until(lambda: links() == 1)
        write(producer, "slots", b"e")
        assert values(other, 1) == [b"e"]
        two.close()
    finally:
        kafka.stop()


def test_a_subscription_that_goes_over_gets_each_record_once(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """Some were taken, some wait to be taken, some come later; the clients that it leaves end."""
    producer = topic_of(kafka, topic_name)
    config = kafka.client_config()
    link, target = ClusterLink(config), ClusterLink({**config, "socket.keepalive.enable": True})
    subscription = link.subscribe(everything)
    subscription.add([(topic_name, 0)])
    for n in range(3):
        write(producer, topic_name, b"taken%d" % n, key=b"lease:%d" % n)
    assert values(subscription, 3) == [b"taken0", b"taken1", b"taken2"]
    write(producer, topic_name, b"waits", key=b"lease:waits")
    until(lambda: len(subscription._inbox) == 1)

    gone: list[bool] = []
    subscription.move(target._clients.feed, lambda: gone.append(True))
    assert values(subscription, 1) == [b"waits"]
    assert gone == [True]
    link.release()
    until(lambda: links() == 1)
    write(producer, topic_name, b"later")
    assert values(subscription, 1) == [b"later"]
    target.close()


def test_subscriptions_that_were_closed_leave_nothing_behind(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """Each is forgotten by its link, which reads on for the others."""
    producer = topic_of(kafka, topic_name)
    link = ClusterLink(kafka.client_config())
    lasting = link.subscribe(everything)
    lasting.add([(topic_name, 0)])
    closed: list[weakref.ref[ControlSubscription]] = []
    for _ in range(20):
        subscription = link.subscribe(everything)
        subscription.add([(topic_name, 0)])
        subscription.close()
        subscription.close()
        closed.append(weakref.ref(subscription))
    del subscription

    until(lambda: [gone() for gone in closed] == [None] * 20)  # the reading thread may hold one for a moment
    write(producer, topic_name, b"v")
    assert values(lasting, 1) == [b"v"]
    link.close()


def test_a_link_reads_on_when_its_reader_can_be_made(
    kafka: KafkaUnderTest, topic_name: str, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the logs was read with this login: a client that cannot be made now waits for a token, or for a file."""
    producer = topic_of(kafka, topic_name)
    real, refused = control_feed.control_consumer, [KafkaError._INVALID_ARG, KafkaError._AUTHENTICATION]

    def made(*given: Any) -> Any:
        if refused:
            raise KafkaException(KafkaError(refused.pop()))
        return real(*given)

    monkeypatch.setattr(control_feed, "control_consumer", made)
    link = ClusterLink(kafka.client_config())
    subscription = link.subscribe(everything)
    subscription.add([(topic_name, 0)])
    until(lambda: not refused)
    write(producer, topic_name, b"v")
    assert values(subscription, 1) == [b"v"]
    link.close()


def test_a_closed_subscription_keeps_no_earlier_clients(kafka: KafkaUnderTest, topic_name: str, alone: None) -> None:
    """Of two that read by the former credentials one goes over, the other one is closed before it has; it is held still."""
    topic_of(kafka, topic_name)
    link = ClusterLink({**kafka.client_config(), "sasl.username": "u", "sasl.password": "p"})
    reading, closed = link.subscribe(everything), link.subscribe(everything)
    for subscription in (reading, closed):
        subscription.add([(topic_name, 0)])

    link.set_sasl_credentials("u", "q")
    until(lambda: not reading.poll(0) and reading.feed is not closed.feed)
    assert links() == 2
    closed.close()
    until(lambda: links() == 1)
    link.close()


def test_a_user_that_takes_nothing_keeps_nobody_waiting(kafka: KafkaUnderTest, topic_name: str, alone: None) -> None:
    """Its thread is blocked in what the application does: others read, look and leave."""
    producer = topic_of(kafka, topic_name)
    stuck, link = ClusterLink(kafka.client_config()), ClusterLink(kafka.client_config())
    blocked, reading = stuck.subscribe(everything), link.subscribe(everything)
    for subscription in (blocked, reading):
        subscription.add([(topic_name, 0)])
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        def use(client: Any) -> None:
            entered.set()
            release.wait(120)

        stuck.offsets._lending("read_committed", use)

    holding = threading.Thread(target=hold, daemon=True)
    holding.start()
    assert entered.wait(60)
    try:
        for n in range(3):
            write(producer, topic_name, b"%d" % n)
            look = reading.look()
            found: list[ControlMessage] = []
            until(lambda found=found, look=look: found.extend(reading.poll(0.02)) or reading.reached(look))  # type: ignore[misc]
            assert [message.value for message in found] == [b"%d" % n]
        link.close()
        assert links() == 1
    finally:
        release.set()
        holding.join(60)
    assert values(blocked, 3) == [b"0", b"1", b"2"]
    stuck.close()


class Broken(Exception):
    """A signal's."""


def broken_off(call: Callable[[], object], lines: int) -> bool:
    """Whether the call was broken off, at the so-manyth line that it takes in the link's own files."""
    left = lines

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if "connector/link" not in frame.f_code.co_filename:
            return None
        # A block's lock is given back on the line that took it, before any signal is looked at.
        of_a_lock = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith("with ")
        left -= event == "line" and not of_a_lock
        if not left:
            left = -1
            raise Broken
        return trace

    sys.settrace(trace)
    try:
        call()
    except Broken:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("what", ["open", "close", "log in anew"])
def test_a_call_that_is_broken_off_keeps_no_client_alive(what: str, alone: None) -> None:
    """By a signal's exception, at each line in turn: what nobody has any more ends, and others can open the link again."""
    config = {"bootstrap.servers": "127.0.0.1:1", "sasl.mechanism": "PLAIN", "security.protocol": "sasl_plaintext"}
    config |= {"sasl.username": "u", "sasl.password": "p"}
    lines = 0
    while one_more(what, config, lines := lines + 1):
        left = [user for clients in _registry().clients.values() for user in clients.users]
        if left:
            gc.collect()
        assert not [user for clients in _registry().clients.values() for user in clients.users]
    assert lines > 10


def one_more(what: str, config: dict[str, Any], lines: int) -> bool:
    """Whether one such call was broken off at this line; nothing of it is kept."""
    if what == "open":
        return broken_off(lambda: ClusterLink(config), lines)
    link = ClusterLink(config)
    if what == "close":
        return broken_off(link.close, lines)
    again = broken_off(lambda: link.set_sasl_credentials("u", "q"), lines)
    assert link.subscribe(everything).poll(0) == []
    return again


def test_one_users_fatal_error_is_told_to_those_who_had_something_on_the_way(
    kafka: KafkaUnderTest, topic_name: str
) -> None:
    """The next record of anybody goes through a new client; a second one who met the error does not close that."""
    topic_of(kafka, topic_name)
    writer = ControlWriter(kafka.client_config())
    told: list[Any] = []
    writer.produce(topic_name, b"v", b"k", 0, lambda error, _: told.append(error))
    until(lambda: bool(writer.poll(0.05)) and told == [None])
    failed = writer._client
    assert failed is not None
    writer._give_up(failed)
    writer.produce(topic_name, b"v", b"k", 0, lambda error, _: told.append(error))
    second = writer._client
    writer._give_up(failed)
    assert writer._client is second
    until(lambda: bool(writer.poll(0.05)) and told == [None, None])
    assert not writer.pending
    writer.close()


@pytest.mark.slow
def test_a_token_that_is_waited_for_keeps_no_other_link_waiting() -> None:
    """One user's oauth_cb does not return: clients of other settings open theirs, and come and go."""
    asked, answer = threading.Event(), threading.Event()

    def token(_: str) -> tuple[str, float]:
        asked.set()
        answer.wait(120)
        return "token", clock.wall_ms() / 1000 + 3600

    servers = {"bootstrap.servers": "127.0.0.1:1"}
    slow = ClusterLink(
        {**servers, "security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
    )
    opening = threading.Thread(target=lambda: slow.admin.client, daemon=True)
    opening.start()
    assert asked.wait(60)
    try:
        others: list[Any] = []

        def use() -> None:
            with_another = ClusterLink({**servers, "socket.timeout.ms": 1234})
            others.append(with_another.admin.client)
            with_another.close()

        using = threading.Thread(target=use, daemon=True)
        using.start()
        using.join(60)
        assert not using.is_alive()
        assert len(others) == 1
    finally:
        answer.set()
        opening.join(60)
        slow.close()


@pytest.mark.parametrize("different", ["sasl.password", "ssl.ca.location", "oauth_cb", "security.protocol", "none"])
def test_users_of_other_rights_share_nothing(different: str) -> None:
    """Each setting that says who connects, and how, is part of what is compared; functions by what they are."""

    def first(_: str) -> tuple[str, float]:
        return "a", 0.0

    def second(_: str) -> tuple[str, float]:
        return "b", 0.0

    config: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext"}
    config |= {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    other = {"sasl.password": "q", "ssl.ca.location": "/x", "oauth_cb": second, "security.protocol": "sasl_ssl"}
    config |= {"oauth_cb": first} if different == "oauth_cb" else {}
    changed = {different: other[different]} if different != "none" else {"client.id": "another"}
    assert (_identity(config) == _identity({**config, **changed})) == (different == "none")
    assert _identity(config) == _identity(dict(reversed(config.items())))


def made(config: dict[str, str]) -> int:
    """How many clients of the library this process has made until now: each is told by its number in what it logs."""
    said: list[str] = []
    logger = logging.Logger("probe", logging.DEBUG)
    logger.addHandler(handler := logging.Handler())
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    probe = Producer({**config, "debug": "conf", "logger": logger})
    until(lambda: bool(probe.poll(0.1) or said), "a line of the library's log")
    found = re.search(r"rdkafka#producer-(\d+)", said[0])
    assert found is not None, said
    return int(found[1])


def test_the_first_records_of_many_topics_open_one_client_each(
    kafka: KafkaUnderTest, topic_name: str, alone: None
) -> None:
    """The adopter's, which has the topic's transactional id. All else goes through the clients that the process has."""
    config, topics = kafka.client_config(), [f"{topic_name}-{n}" for n in range(6)]
    admin = kafka.admin()
    for created in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        created.result(30)
    with OrderedProducer(config) as producer:
        producer.produce(topics[0], b"v", b"k")
        before = made(config)
        for topic in topics[1:]:
            producer.produce(topic, b"v", b"k")

        # One that a busy broker has not answered within a second is given up, and another one asks. That may happen to some.
        assert len(topics) - 1 <= made(config) - before - 1 < 2 * (len(topics) - 1)
        assert producer.flush(60) == 0


@pytest.mark.usefixtures("alone")
def test_a_connection_that_nobody_uses_is_closed_and_made_again(kafka: KafkaUnderTest) -> None:
    """Twenty seconds after its last use, unless the application's own settings say otherwise."""
    topic_of(kafka, "link-idle")

    def connections() -> set[tuple[Any, Any]]:
        return {(each.laddr, each.raddr) for each in psutil.Process().net_connections("tcp") if each.raddr}

    others = connections()
    link = ClusterLink({**kafka.client_config(), "connections.max.idle.ms": 1500})
    for _ in range(2):
        assert link.admin.stable_ends([("link-idle", 0)], 30.0) == {("link-idle", 0): 0}
        mine = connections() - others
        assert mine
        until(lambda mine=mine: not mine & connections())
    link.close()
