"""Commits whose answers are errors, transactions whose end is unknown, and whose metadata a commit carries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from keyorder.connector import clock
from keyorder.connector.config import consumer_settings
from keyorder.connector.consuming.application_commits import ApplicationCommits
from keyorder.connector.consuming.callbacks import Callbacks
from keyorder.connector.consuming.committing import Committer
from keyorder.connector.consuming.partition_state import PartitionState
from keyorder.connector.consuming.records.strays import StrayPolicy, Strays
from keyorder.connector.consuming.starting import Starter
from keyorder.partitioner.errors import KeyorderError
from keyorder.partitioner.gates.starts import metadata_of
from support.dumb import timeline_of

TIMELINE = timeline_of(1, [(2, {0: 5}, {1: 0})])


class Answer:
    """As the client library's TopicPartition in an answer, whose error cannot be set."""

    def __init__(self, partition: int, offset: int, metadata: str = "", error: KafkaError | None = None) -> None:
        self.topic, self.partition, self.offset, self.metadata, self.error = "t", partition, offset, metadata, error


class Raw:
    """A client library that answers as told."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.commits = list(answers), list[Any]()

    def committed(self, places: list[TopicPartition], timeout: float) -> list[Answer]:
        return self.answers

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.commits.append([(p.partition, p.offset, p.metadata) for p in offsets])
        return offsets


def committer(raw: Raw, owned: PartitionState, **settings: object) -> Committer:
    """The commits of a member with one partition and no listener, behind no closed gate."""
    found, _ = consumer_settings({"bootstrap.servers": "localhost:1", "group.id": "g", **settings})
    assignment: Any = SimpleNamespace(
        owned={owned.place: owned},
        view=lambda _: SimpleNamespace(timeline=TIMELINE),
        fetching=SimpleNamespace(manual=False),
        topics=lambda: {owned.topic},
    )
    gates: Any = SimpleNamespace(
        proven_epoch=lambda o, at: 1 if at >= 5 else 0, moved=lambda topic: None, current=lambda _: True
    )
    library: Any = raw
    nobody: Any = None
    strays = Strays({}, "g", StrayPolicy.DELIVER, "")
    return Committer(library, found, assignment, Callbacks(), gates, strays=strays, link=nobody)


def _asked(commits: Committer, place: TopicPartition, asynchronous: bool) -> None:
    """The application's commit()."""
    ApplicationCommits(commits._raw, commits._settings, commits._assignment, commits).commit([place], asynchronous)


def test_an_error_of_one_partition_is_no_missing_commit() -> None:
    """It would begin at its log start, and read everything again."""
    starter = Starter.__new__(Starter)
    denied = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    starter._raw = Raw(Answer(0, 7), Answer(1, -1001, error=denied))  # type: ignore[assignment]
    starter._group, starter._bootstrap = "g", "localhost:1"
    with pytest.raises(KeyorderError):
        starter.committed([("t", 0), ("t", 1)])


def test_nothing_is_committed_while_the_end_of_a_transaction_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain commit would win over the transaction's offset, should that have been committed after all."""
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)  # a look that takes long would put off the next one
    owned = PartitionState("t", 0)
    owned.start_at(3)
    owned.commits.learned(3, 0, "")
    raw = Raw(Answer(0, -1001, error=KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)))
    commits = committer(raw, owned, **{"enable.auto.commit": False})
    offsets = commits.transactions
    offsets.used = True
    offsets.stamp([TopicPartition("t", 0, 5)])
    offsets.ended(None)
    owned.processed = owned.returned = 5  # what the application stores or skips meanwhile
    commits.flush_and_prove()
    assert raw.commits == []

    raw.answers = [Answer(0, 5, metadata_of(0))]
    commits._ask_again_at = 0.0
    commits.flush_and_prove()
    assert raw.commits == [[(0, 5, "ko1:1")]]


def test_keyorders_own_commits_keep_the_metadata_of_the_application() -> None:
    """After a standstill, with a proof and where the position is committed again so that it does not expire."""
    owned = PartitionState("t", 0)
    owned.start_at(5)
    raw = Raw()
    commits = committer(raw, owned, **{"enable.auto.commit": False})
    _asked(commits, TopicPartition("t", 0, 5, "mine"), asynchronous=False)
    assert commits.confirms([owned])
    commits._next_idle = 0.0
    commits.periodic()
    assert raw.commits == [[(0, 5, "ko1:1;mine")]] * 3


def test_a_commit_on_its_way_is_confirmed_with_its_own_metadata() -> None:
    """The application's newest word stands, also when it is not acknowledged yet."""
    owned = PartitionState("t", 0)
    owned.start_at(5)
    owned.commits.learned(5, 1, "old")
    raw = Raw()
    commits = committer(raw, owned, **{"enable.auto.commit": False})
    _asked(commits, TopicPartition("t", 0, 6, "new"), asynchronous=True)
    assert commits.confirms([owned])
    assert raw.commits == [[(0, 6, "ko1:1;new")]] * 2


def _sent(commits: Committer, offset: int, asynchronous: bool = True) -> None:
    _asked(commits, TopicPartition("t", 0, offset), asynchronous)


def test_a_late_answer_takes_no_other_commit_for_answered() -> None:
    """It was waited for by a synchronous commit already; the revocation still has to wait for those behind that one."""
    owned = PartitionState("t", 0)
    owned.start_at(0)
    raw = Raw()
    commits = committer(raw, owned, **{"enable.auto.commit": False})
    _sent(commits, 1)
    _sent(commits, 2, asynchronous=False)
    _sent(commits, 3)
    commits.arrived(None, [TopicPartition("t", 0, 1, "ko1:0")])
    raw.commits.clear()
    commits.on_revoke([owned])
    assert raw.commits == [[(0, 3, "ko1:0")]]


def test_a_late_answer_does_not_acknowledge_a_newer_commit_of_the_same_offset() -> None:
    """The application has gone back and commits the offset again: only that commit's own answer acknowledges it."""
    owned = PartitionState("t", 0)
    owned.start_at(0)
    raw = Raw()
    commits = committer(raw, owned, **{"enable.auto.commit": False})
    _sent(commits, 3)
    _sent(commits, 1, asynchronous=False)
    _sent(commits, 3)
    commits.arrived(None, [TopicPartition("t", 0, 3, "ko1:0")])
    assert owned.commits.offset == 1
    commits.arrived(None, [TopicPartition("t", 0, 3, "ko1:0")])
    assert owned.commits.offset == 3


def test_a_commit_of_an_earlier_ownership_is_not_made_again() -> None:
    """The partition was lost with a commit unanswered and has come back: the group may be further by now."""
    before, owned = PartitionState("t", 0), PartitionState("t", 0)
    before.start_at(0)
    owned.start_at(8)
    raw = Raw()
    commits = committer(raw, before, **{"enable.auto.commit": False})
    _sent(commits, 3)
    commits._assignment.owned[owned.place] = owned
    raw.commits.clear()
    commits.on_revoke([owned])
    assert raw.commits == []
