"""One task's rows in one transaction, with a marker that tells a replay what was written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from tenacity import retry_if_exception, stop_after_delay, wait_exponential

from ...connector.attempts import Attempts
from ...connector.crash import crash_point
from ...connector.kafka_errors import translate
from ...connector.producing.producer import OrderedProducer
from ...connector.settings import milliseconds
from .columns import written
from .delivery import Delivery
from .errors import ReplayMismatchError, SinkDeliveryError, StaleTaskError
from .fingerprint import Digest, Fingerprint, OrderedFingerprint
from .headers import TopicHeaders
from .markers import Marker, encode_marker, marker_slot
from .options import SinkOptions
from .task import Task, transactional_id
from .warm import WARM, Warm

_LOOK_SECONDS = 60.0


class Outcome(NamedTuple):
    """Of a task. rows: how many it was given. replayed: an earlier attempt had committed them. stale: how many were left out.

    follows: this run of the query has committed an earlier batch already, so that none of this one is from before a restart.
    """

    rows: int
    replayed: bool = False
    stale: int = 0
    follows: bool = False


def write_transaction(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, task: Task, warm: Warm = WARM
) -> Outcome:
    """Write a task's rows exactly once.

    Raises ReplayMismatchError, StaleTaskError, SinkDeliveryError, and what a producer raises.
    """
    config = dict(options.client)
    config["transactional.id"] = transactional_id(task.slot)
    seen, headers = Fingerprint(), TopicHeaders(options)
    rows = _fingerprinted(batches, seen, options, headers)
    first = next(rows, None)
    if first is None:
        marker = _committed(warm, config, task)
        if marker is not None and marker.batch == task.batch:  # a marker stands behind rows only
            raise ReplayMismatchError(task.slot, task.batch, marker.fingerprint, seen.digest())
        return Outcome(0, follows=_follows(marker, task))
    producer, fresh = _ready(warm, config)
    try:
        marker = _committed(warm, config, task)
        if marker is not None and marker.batch == task.batch:
            again: Digest = Fingerprint() if marker.version > 1 else OrderedFingerprint()
            for _ in _fingerprinted(chain([first], batches), again, options, headers):
                pass
            if again.digest() != marker.fingerprint:
                raise ReplayMismatchError(task.slot, task.batch, marker.fingerprint, again.digest())
            warm.done(config)
            return Outcome(again.rows, replayed=True)
        follows = _follows(marker, task)
        delivery = Delivery(producer, options, task, headers)
        producer.begin_transaction()
        try:
            delivery.send([first])
            if not fresh:
                delivery.settle()  # only the cluster knows whether another process took the task over since
        except (SinkDeliveryError, KafkaException):
            if fresh:
                raise
            warm.discard(config)
            producer, fresh = _ready(warm, config)
            marker = _committed(warm, config, task)
            if marker is not None and marker.batch == task.batch:
                raise StaleTaskError(task.slot, task.batch, marker.batch) from None
            delivery = Delivery(producer, options, task, headers)
            producer.begin_transaction()
            delivery.send([first])
        crash_point("sink-rows-queued")
        delivery.send(rows)
        delivery.settle()
        _mark(producer, task, Marker(task.batch, seen.rows, seen.digest(), task.run))
        crash_point("sink-marked")
        _commit(producer, str(config.get("bootstrap.servers")))
        crash_point("sink-committed")
    except BaseException:
        # Whatever is half done in it is aborted, by this producer now or by the next attempt's, which fences it.
        warm.discard(config)
        raise
    warm.done(config)
    return Outcome(delivery.rows, stale=delivery.stale, follows=follows)


def _fingerprinted(
    batches: Iterable[pa.RecordBatch], seen: Digest, options: SinkOptions, headers: TopicHeaders
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            # Versions of the topics that have a use for them alone: in others the column may be what changes in a replay.
            seen.add(written(batch, options.topic, options.compaction_header is not None), *headers.versions(batch))
            yield batch


def _ready(warm: Warm, config: dict[str, object]) -> tuple[OrderedProducer, bool]:
    producer, fresh = warm.producer(config)
    if fresh:
        try:
            producer.init_transactions(_LOOK_SECONDS)
        except KafkaException as raised:
            warm.discard(config)
            servers = str(config.get("bootstrap.servers"))
            raise translate(
                raised.args[0], "begin a transaction as", str(config["transactional.id"]), servers
            ) from raised
    return producer, fresh


def _committed(warm: Warm, config: dict[str, object], task: Task) -> Marker | None:
    # What another task left open ends with its transaction, if nobody may end it before.
    timeout = _LOOK_SECONDS + milliseconds(config, "transaction.timeout.ms", 60_000)
    marker = warm.markers(config).last(task.slot, timeout)
    if marker is not None and marker.batch > task.batch:
        raise StaleTaskError(task.slot, task.batch, marker.batch)
    return marker


def _follows(marker: Marker | None, task: Task) -> bool:
    return marker is not None and marker.batch < task.batch and marker.run == task.run != ""


def _mark(producer: OrderedProducer, task: Task, marker: Marker) -> None:
    """Last in the transaction: until it ends, it hides other tasks' markers behind it."""
    failures: list[KafkaError] = []
    topic, partition = marker_slot(task.slot)

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer.produce_control_record(topic, partition, task.slot.encode(), encode_marker(marker), delivered)
    producer.flush()
    if failures:
        raise SinkDeliveryError(topic, 1, f"{failures[0].name()}: {failures[0].str()}")


def _commit(producer: OrderedProducer, servers: str) -> None:
    attempts = Attempts(
        stop=stop_after_delay(_LOOK_SECONDS),
        wait=wait_exponential(multiplier=0.05, max=2.0),
        retry=retry_if_exception(lambda e: isinstance(e, KafkaException) and bool(e.args[0].retriable())),
        reraise=True,
    )
    try:
        attempts(producer.commit_transaction, _LOOK_SECONDS)
    except KafkaException as raised:
        raise translate(raised.args[0], "commit", "a task's transaction", servers) from raised
