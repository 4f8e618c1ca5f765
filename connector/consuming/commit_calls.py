"""What a consumer's application says of what it has processed: commit(), store_offsets(), offsets in transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ...partitioner.errors import UsageError
from ..config import ConsumerSettings
from ..messages import place_of, with_words
from .application_commits import ApplicationCommits
from .callers import Serial, alone
from .committing import Committer
from .delivery import Delivery
from .group_metadata import GroupMetadata


class CommitCalls(Serial):
    """The part of a consumer's face that commits."""

    _application_commits: ApplicationCommits
    _commits: Committer
    _delivery: Delivery
    _raw: Consumer
    _settings: ConsumerSettings

    @alone
    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Mark records as processed; the next automatic commit takes them. Needs enable.auto.offset.store=false."""
        self._check_open()
        self._delivery.book()  # nothing that is given out changes: the run of a loop that stores each record goes on
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        if message is None and offsets is None:
            raise ValueError("expected either message or offsets")
        if self._settings.auto_store:
            text = "store_offsets needs enable.auto.offset.store=false: otherwise poll() stores by itself"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
        self._application_commits.store(_places("store", message, offsets))

    @alone
    def commit(
        self,
        /,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool | None = None,
        **named: bool,
    ) -> list[TopicPartition] | None:
        """Commit a message's offset, the given offsets, or all that was returned (stored, where storing is manual).

        Every commit carries the group's epoch. With asynchronous=True this returns at once, and `on_commit` of the
        settings hears of the result in a later poll; otherwise the result is returned. Only partitions that this member
        owns: of any other the committed offset is another member's word. asynchronous: True unless given; `async`, its older
        name, is taken as well.
        """
        returns = _asynchronous(asynchronous, named)
        if returns:
            self._check_open()
            self._delivery.book()  # as in store_offsets
        else:
            self._begin()  # callbacks run meanwhile
        if message is not None and offsets is not None:
            raise ValueError("message and offsets are mutually exclusive")
        places = _places("commit", message, offsets) if message is not None or offsets is not None else None
        return self._application_commits.commit(places, returns)

    @alone
    def consumer_group_metadata(self) -> Any:
        """As confluent_kafka.Consumer.consumer_group_metadata; for OrderedProducer.send_offsets_to_transaction."""
        if self._settings.gate_keys:
            raise UsageError(
                "keyorder.gate=key delivers some records behind later offsets, and a transaction's offsets would pass them: "
                "set keyorder.gate=partition where offsets go through transactions"
            )
        self._commits.await_dead_letters()
        self._commits.begin_transactions()
        return GroupMetadata(self._raw.consumer_group_metadata(), self._commits.transactions)

    def _begin(self) -> None:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError


def _places(what: str, message: Message | None, offsets: list[TopicPartition] | None) -> list[TopicPartition]:
    """What a commit or a store names. A message without an offset names nothing, as a place without one."""
    if message is None:
        if not isinstance(offsets, list) or not all(isinstance(place, TopicPartition) for place in offsets):
            raise TypeError("expected list of TopicPartition")
        return list(offsets)
    if not isinstance(message, Message):
        raise TypeError("expected confluent_kafka.Message")
    error = message.error()
    if error is not None:
        text = f"Cannot {what} offsets for message with error: '{error.str()}'"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
    place, offset, epoch = place_of(message), message.offset(), message.leader_epoch()
    if offset is None or offset < 0:
        return [TopicPartition(*place)]
    return [with_words(*place, offset + 1, None, epoch)]


def _asynchronous(given: bool | None, named: Mapping[str, bool]) -> bool:
    """Of commit(): `asynchronous` wins over `async`, a name that Python has kept for itself since. TypeError for another."""
    for name in named:
        if name != "async":
            raise TypeError(f"commit() got an unexpected keyword argument {name!r}")
    return named.get("async", True) if given is None else given
