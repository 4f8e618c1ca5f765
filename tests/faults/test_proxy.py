"""The network of proxies, against a broker of a few lines: what passes, what waits, what is cut off."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from faults.proxy import Effect, Network, Rule, Way, disowned
from keyorder.connector.local.properties import HOST


def read(connection: socket.socket) -> bytes | None:
    """The next message; None where the connection has ended."""
    try:
        with connection.makefile("rb", buffering=0) as stream:
            head = _exactly(stream, 4)
            return None if head is None else _exactly(stream, struct.unpack(">i", head)[0])
    except ConnectionError:
        return None


def _exactly(stream: socket.SocketIO, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            return None
        data += more
    return data


def request(api: int, correlation: int, client: str) -> bytes:
    """A request with an empty body."""
    name = client.encode()
    message = struct.pack(">hhih", api, 0, correlation, len(name)) + name
    return struct.pack(">i", len(message)) + message


class Echo:
    """A broker that answers each request with its number, and notes what it got."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.got: list[tuple[int, int]] = []
        self.ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while (message := read(connection)) is not None:
                api, _, correlation = struct.unpack_from(">hhi", message)
                self.got.append((api, correlation))
                try:
                    connection.sendall(struct.pack(">ii", 4, correlation))
                except ConnectionError:
                    break
        self.ended.set()

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


@contextmanager
def client(port: int) -> Iterator[socket.socket]:
    """A connection whose silence for a minute fails the test."""
    with socket.create_connection((HOST, port)) as connection:
        connection.settimeout(60)
        yield connection


@pytest.fixture
def broker() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.close()


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


def answered(connection: socket.socket, api: int, correlation: int, name: str = "w1") -> bool:
    """Ask once; whether the answer came."""
    connection.sendall(request(api, correlation, name))
    message = read(connection)
    return message is not None and struct.unpack(">i", message) == (correlation,)


def test_messages_pass_where_no_rule_is_about_them(network: Network, broker: Echo) -> None:
    """Rules for another request, client, broker or way leave a message alone."""
    port = network.listen(1, broker.port)
    rules = [
        Rule(Effect.CUT, Way.REQUEST, frozenset({"Fetch"})),
        Rule(Effect.CUT, Way.REQUEST, clients="w2|c.*"),
        Rule(Effect.CUT, Way.REQUEST, brokers=frozenset({2, 3})),
        Rule(Effect.CUT, Way.ANSWER, frozenset({"Fetch"})),
    ]
    network.apply(rules)
    with client(port) as connection:
        assert [answered(connection, 0, n) for n in (1, 2, 3)] == [True, True, True]

    assert [rule.hits for rule in rules] == [[], [], [], []]
    assert network.seen == {("w1", "Produce")}


def test_a_held_request_arrives_when_the_rule_is_lifted(network: Network, broker: Echo) -> None:
    """It, and what lies behind it on its connection, in order; other connections go on."""
    port = network.listen(1, broker.port)
    rule = Rule(Effect.HOLD, Way.REQUEST, frozenset({"OffsetCommit"}))
    network.apply([rule])
    with client(port) as held, client(port) as other:
        held.sendall(request(8, 1, "c1") + request(0, 2, "c1"))
        assert answered(other, 0, 3)
        assert broker.got == [(0, 3)]

        network.lift([rule])

        assert [read(held), read(held)] == [struct.pack(">i", 1), struct.pack(">i", 2)]
    assert broker.got == [(0, 3), (8, 1), (0, 2)]
    assert len(rule.hits) == 1


def test_a_held_request_arrives_though_its_sender_has_gone(network: Network, broker: Echo) -> None:
    """As on a network that heals: what the sender's machine had taken is delivered, and then the end."""
    port = network.listen(1, broker.port)
    rule = Rule(Effect.HOLD, Way.REQUEST, clients="w1")
    network.apply([rule])
    with client(port) as connection:
        connection.sendall(request(0, 1, "w1") + request(0, 2, "w1"))
    assert broker.got == []

    network.lift([rule])

    assert broker.ended.wait(120)
    assert broker.got == [(0, 1), (0, 2)]


def test_an_answer_that_is_cut_off_was_carried_out(network: Network, broker: Echo) -> None:
    """The broker had the request, the client sees its connection reset; with a limit the next one passes."""
    port = network.listen(1, broker.port)
    rule = Rule(Effect.CUT, Way.ANSWER, frozenset({"EndTxn"}), limit=1)
    network.apply([rule])
    with client(port) as connection:
        assert answered(connection, 0, 1)
        assert not answered(connection, 26, 2)
    with client(port) as connection:
        assert answered(connection, 26, 3)

    assert broker.got == [(0, 1), (26, 2), (26, 3)]
    assert len(rule.hits) == 1


def test_a_request_that_is_cut_off_never_arrives(network: Network, broker: Echo) -> None:
    """Its connection is reset before the broker has seen it."""
    port = network.listen(1, broker.port)
    network.apply([Rule(Effect.CUT, Way.REQUEST, frozenset({"Produce"}))])
    with client(port) as connection:
        assert not answered(connection, 0, 1)

    assert broker.ended.wait(120)
    assert broker.got == []


@pytest.mark.parametrize("way", Way)
def test_a_partition_one_way_hides_the_end_of_a_connection(network: Network, broker: Echo, way: Way) -> None:
    """Neither a message nor an end crosses until it heals; the other way is open."""
    port = network.listen(1, broker.port)
    with client(port) as connection:
        assert answered(connection, 0, 1)
        rule = Rule(Effect.HOLD, way, brokers=frozenset({1}))
        network.apply([rule])
        connection.sendall(request(0, 2, "w1"))
        connection.shutdown(socket.SHUT_WR)
        if way is Way.ANSWER:
            assert broker.ended.wait(120)
        assert broker.got == ([(0, 1)] if way is Way.REQUEST else [(0, 1), (0, 2)])

        network.lift([rule])

        assert read(connection) == struct.pack(">i", 2)
        assert read(connection) is None


@pytest.mark.parametrize(("effect", "amount"), [(Effect.DELAY, 0.01), (Effect.THROTTLE, 10_000.0)])
def test_late_messages_arrive_in_order(network: Network, broker: Echo, effect: Effect, amount: float) -> None:
    """A slow network loses nothing."""
    port = network.listen(1, broker.port)
    rule = Rule(effect, Way.REQUEST, amount=amount)
    network.apply([rule])
    with client(port) as connection:
        assert [answered(connection, 0, n) for n in range(20)] == [True] * 20

    assert len(rule.hits) == 20


def test_a_dead_broker_looks_dead(network: Network, broker: Echo) -> None:
    """A connection to a port that nobody listens on ends at once."""
    port = network.listen(1, broker.port)
    broker.close()
    with client(port) as connection:
        assert not answered(connection, 0, 1)


def test_only_answers_to_offset_fetch_can_be_disowned() -> None:
    """No other answer has the shape; and of the shape is what a broker of today gives, with the group's name in it."""
    with pytest.raises(ValueError, match="OffsetFetch"):
        Rule(Effect.DISOWN, Way.ANSWER, frozenset({"Produce"}))
    head = struct.pack(">ibib", 7, 0, 0, 2) + b"\x02g"
    answer = head + b"\x02\x02t\x02" + struct.pack(">iqib", 0, 5, 0, 1) + b"\0\0\0\0" + struct.pack(">hbb", 0, 0, 0)
    assert disowned(answer, 9) == head + b"\x01" + struct.pack(">hbb", 16, 0, 0)
    with pytest.raises(ValueError, match="version 8 or 9"):
        disowned(answer, 7)


def test_a_rule_names_known_requests() -> None:
    """A misspelt one would never fire."""
    with pytest.raises(ValueError, match="Produse"):
        Rule(Effect.HOLD, Way.REQUEST, frozenset({"Produse"}))
