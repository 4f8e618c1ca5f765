"""bootstrap.servers whose hosts have no address: told soon, and never said of a cluster that is slow."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from keyorder.connector.cli.main import _run
from keyorder.connector.doctor import brokers
from keyorder.connector.doctor.findings import Status
from keyorder.connector.group_gates import GroupOffsets
from keyorder.connector.metadata import cluster_metadata
from keyorder.connector.refusals import ClusterAdmin, unknown_hosts
from keyorder.errors import BrokerUnreachableError, HostUnknownError

NOWHERE = "nowhere.invalid:9092"
# Longer than a test may take: whoever waits for it does not pass.
FOR_EVER = 100_000


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the resolver says of hosts, as gaierror's codes; a name that is not in it has an address."""
    codes = {"nowhere.invalid": socket.EAI_NONAME}
    real = socket.getaddrinfo

    def resolve(host: str, *words: Any, **more: Any) -> Any:
        if host in codes:
            raise socket.gaierror(codes[host], "as the test says")
        return real("127.0.0.1", *words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return codes


@pytest.mark.parametrize(
    ("servers", "unknown"),
    [
        (NOWHERE, True),
        (f" {NOWHERE} , PLAINTEXT://{NOWHERE},", True),
        (f"{'x' * 64}.invalid:9092", True),
        (f"{NOWHERE},known.invalid:9092", False),
        ("busy.invalid:9092", False),
        (f"{NOWHERE},busy.invalid:9092", False),
        ("127.0.0.1:1", False),
        ("", False),
    ],
)
def test_only_where_no_host_has_an_address(names: dict[str, int], servers: str, unknown: bool) -> None:
    """A resolver that does not answer has not said that a name is wrong."""
    names["busy.invalid"] = socket.EAI_AGAIN
    names["x" * 64 + ".invalid"] = socket.EAI_NONAME
    found = unknown_hosts(servers)
    assert unknown is (found is not None)
    if found is not None:
        assert f"bootstrap.servers={servers!r}" in str(found)
        assert "has an address on this machine" in str(found)
        assert (found.retriable, isinstance(found, BrokerUnreachableError)) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["topics", "list"], ["gates", "list"], ["groups", "list"], ["doctor"]])
def test_a_command_does_not_wait_for_a_host_that_is_none(
    names: dict[str, int], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """However long it may take: the error names the setting and what to do."""
    code = _run([*words, "--bootstrap-server", NOWHERE, "--timeout", str(FOR_EVER), "--output", "json"])
    said = capsys.readouterr().out
    assert code == 1
    assert "bootstrap.servers='nowhere.invalid:9092'" in said
    assert "correct the name" in said


@pytest.mark.slow
def test_a_call_that_has_waited_names_the_host_too(names: dict[str, int]) -> None:
    """Services wait, since a name may come to be known while they start; then they are told the same."""
    with pytest.raises(HostUnknownError):
        cluster_metadata(ClusterAdmin({"bootstrap.servers": NOWHERE}), NOWHERE, 0.5)


@pytest.mark.slow
def test_groups_gates_name_the_host_too(names: dict[str, int]) -> None:
    """What a group has committed is asked of each partition: how many there are is the first question."""
    config = {"bootstrap.servers": NOWHERE}
    with pytest.raises(HostUnknownError):
        GroupOffsets(config, ClusterAdmin(config), timeout=0.5).committed(["g"], "t")


class Slow(ClusterAdmin):
    """Nobody answers the first question."""

    waited: list[float]

    def list_topics(self, *words: Any, timeout: float = -1, **more: Any) -> Any:
        self.waited.append(timeout)
        if len(self.waited) == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return "the answer"


def test_a_slow_cluster_is_waited_for(names: dict[str, int]) -> None:
    """One whose host has an address gets the rest of the time, and its answer is taken."""
    servers = f"{NOWHERE},127.0.0.1:1"
    slow = Slow({"bootstrap.servers": servers})
    slow.waited = []
    assert str(cluster_metadata(slow, servers, 60.0, hosts_within=3.0)) == "the answer"
    assert slow.waited == [3.0, 57.0]


def test_the_doctor_says_which_advertised_name_is_not_known_here(
    names: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual fault of a broker in a container: it is reached by one name, and gives out another one."""
    known = SimpleNamespace(brokers={1: SimpleNamespace(id=1, host="nowhere.invalid", port=9092)})
    monkeypatch.setattr(brokers, "cluster_metadata", lambda *words, **more: known)
    monkeypatch.setattr(brokers, "fetch_version", lambda *words: None)
    (finding,) = brokers.check_brokers({"bootstrap.servers": "127.0.0.1:1"}, 1.0)
    assert (finding.status, "has no address on this machine" in finding.text) == (Status.FAIL, True)
    assert "advertised.listeners" in finding.fix
