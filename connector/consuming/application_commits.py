"""commit() and store_offsets(): what the application says it has processed, as confluent-kafka's consumer takes it."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .. import clock
from ..config import ConsumerSettings
from .assignment import Assignment
from .commit_notes import shown
from .committing import Committer
from .ending import has_failed
from .partition_state import PartitionState

_LOOK_PATIENCE = 10.0


class ApplicationCommits:
    """The commits that one consumer's application asks for. Used by one thread at a time."""

    def __init__(self, raw: Consumer, settings: ConsumerSettings, assignment: Assignment, commits: Committer) -> None:
        self._raw, self._settings, self._assignment, self._commits = raw, settings, assignment, commits

    def store(self, places: list[TopicPartition]) -> None:
        """The application has processed up to these offsets. Those of others are passed over, unless there are no more."""
        self._commits.stir()
        taken = False
        refused: KafkaError | None = None
        for place in places:
            owned = self._assignment.owned.get((place.topic, place.partition))
            if owned is None:
                if place.topic not in self._assignment.topics() and len(places) == 1:
                    # The client library's own refusal: it depends on whether it has heard of the topic.
                    self._raw.store_offsets(offsets=[TopicPartition(place.topic, place.partition, place.offset)])
                refused = refused or KafkaError(KafkaError._STATE, f"{place.topic}[{place.partition}] is not assigned")
                continue
            taken = True
            if place.offset < 0:
                continue  # it names nothing, as in commit()
            owned.commits.stored, owned.commits.stored_note = place.offset, place.metadata or ""
            owned.done_up_to(place.offset)
        if refused is not None and not taken:
            raise KafkaException(refused)

    def commit(self, places: list[TopicPartition] | None, asynchronous: bool) -> list[TopicPartition] | None:
        """commit() of the application. Raises KafkaException as confluent_kafka does.

        asynchronous: returns None at once; the next polls learn what became of it. The broker takes commits of one
        member in their order, so a later one never loses against it.
        """
        self._commits.stir()
        self._commits.await_dead_letters()
        owned_places: dict[PartitionState, int] = {}
        notes: dict[PartitionState, str] = {}
        epochs: dict[PartitionState, int] = {}
        others: list[TopicPartition] = []
        if places is None:
            for owned in self._assignment.owned.values():
                if owned.started and (self._settings.auto_store or owned.commits.stored is not None):
                    owned.skip_tail()
                    if self._settings.auto_store:
                        owned.done_with_all()
                    if owned.uncommitted:
                        owned_places[owned] = owned.processed
                        notes[owned] = owned.commits.stored_note
        for place in places or []:
            if place.offset < 0:
                continue  # as the client library does: it names nothing
            owned_ = self._assignment.owned.get((place.topic, place.partition))
            if owned_ is None:
                self._check_unmanaged(place)
                others.append(place)
                continue
            owned_.done_up_to(place.offset)
            owned_places[owned_] = owned_.processed
            if place.metadata:
                notes[owned_] = place.metadata
            if place.leader_epoch is not None and owned_.processed == place.offset:
                epochs[owned_] = place.leader_epoch
        if owned_places and self._commits.given_up:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "Commit failed: Local: Timed out: the consumer is closed")
            )
        if owned_places and self._commits.expelled():
            if asynchronous:
                self._raw.commit(asynchronous=True)  # refused: on_commit hears of it
                return None
            text = "Commit failed: Local: Group partition assignment lost"
            raise KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST, text))
        if not owned_places and not others:
            # Nothing new is an error of the call, or where nobody waits for it, one that on_commit hears of.
            nothing = [TopicPartition(*owned.place) for owned in self._assignment.owned.values()]
            if places is not None:
                nothing = [TopicPartition(place.topic, place.partition) for place in places]
            if not asynchronous:
                if has_failed(self._raw):
                    raise KafkaException(KafkaError(KafkaError._FATAL, "Commit failed: Local: Fatal error"))
                if places is None:
                    self._check_not_lost()
                raise KafkaException(KafkaError(KafkaError._NO_OFFSET, "Commit failed: Local: No offset stored"))
            self._raw.commit(offsets=nothing, asynchronous=True)
            return None
        if asynchronous:
            self._commits.send(owned_places, notes, epochs, others)
            return None
        if places is None:
            self._check_not_lost()
        results = self._commits.commit(owned_places, notes, told=False, epochs=epochs, others=others)
        for result in results:
            if result.error is not None:
                raise KafkaException(result.error)
        if places is None:
            # As the client library does: the whole assignment, with no offset where there was nothing to commit.
            said = {(result.topic, result.partition) for result in results}
            results = [*results, *(TopicPartition(*place) for place in self._assignment.owned if place not in said)]
            results.sort(key=lambda result: (result.topic, result.partition))
        return shown(results)

    def _check_unmanaged(self, place: TopicPartition) -> None:
        """Of a partition that this member does not own: on a managed topic its owner's commits open gates, and no other's."""
        views = self._assignment.views
        views.follow(place.topic)
        if not views.await_look(place.topic, clock.now(), _LOOK_PATIENCE):
            text = f"{place.topic}[{place.partition}] is not assigned, and nothing tells whether its topic is managed"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, text))
        if views.timeline(place.topic) is not None:
            text = (
                f"{place.topic}[{place.partition}] is not assigned to this member, and gates of other partitions may wait "
                "for its offset: use keyorder groups reset"
            )
            raise KafkaException(KafkaError(KafkaError._STATE, text))

    def _check_not_lost(self) -> None:
        """Raise _ASSIGNMENT_LOST where the library knows so. It has stored nothing to commit, and asks nobody."""
        try:
            self._raw.commit(asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() == KafkaError._ASSIGNMENT_LOST:
                raise
