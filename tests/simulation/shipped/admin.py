"""The client library's AdminClient: what the product asks of it, each answered through a future."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from simulation.shipped.broker import on_process
from simulation.shipped.client import BROKERS, Client, node
from simulation.shipped.primitives import Future
from simulation.shipped.scheduler import here

_DEFAULTS = {"cleanup.policy": "delete", "max.message.bytes": "1048588", "message.timestamp.type": "CreateTime"}


class AdminClient(Client):
    """As confluent_kafka.admin.AdminClient."""

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        super().__init__({**(config or {}), **kwargs})
        self._leader_epochs: dict[tuple[str, int], int] = {}

    def poll(self, timeout: float | None = -1) -> int:
        """Nothing is served by it here."""
        return 0

    def _ask(self, serve: Callable[[], Any], timeout: float) -> Future:
        """serve: at the broker; what it raises is the answer."""
        here().pass_turn()
        future = Future()

        def at_broker(reply: Callable[..., None]) -> None:
            try:
                reply(serve(), None)
            except KafkaException as error:
                reply(None, error)

        self.link(0).ask(at_broker, future.set)
        error = KafkaException(KafkaError(KafkaError._TIMED_OUT, "admin request timed out"))
        self.cluster.scheduler.after(timeout, on_process, self.process, future.set, None, error)
        return future

    def create_topics(
        self, new_topics: list[Any], operation_timeout: float = 0, request_timeout: float = 60.0, **_: Any
    ) -> dict[str, Future]:
        """As the real one."""

        def create(wanted: Any) -> None:
            if wanted.topic in self.cluster.topics:
                raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
            self.cluster.create(wanted.topic, wanted.num_partitions, dict(wanted.config or {}))

        return {w.topic: self._ask(lambda w=w: create(w), request_timeout) for w in new_topics}

    def create_partitions(
        self, new_partitions: list[Any], operation_timeout: float = 0, request_timeout: float = 60.0, **_: Any
    ) -> dict[str, Future]:
        """As the real one."""

        def grow(wanted: Any) -> None:
            topic = self._topic(wanted.topic)
            if wanted.new_total_count <= len(topic.logs):
                raise KafkaException(KafkaError(KafkaError.INVALID_PARTITIONS))
            before = len(topic.logs)
            topic.grow(wanted.new_total_count)
            for log in topic.logs[before:]:
                log.leader_back = self.cluster.scheduler.now + self.cluster.delay() * 5
            self.cluster.scheduler.note("partitions", wanted.topic, wanted.new_total_count)

        return {w.topic: self._ask(lambda w=w: grow(w), request_timeout) for w in new_partitions}

    def describe_topics(
        self, topics: Any, include_authorized_operations: bool = False, request_timeout: float = 60.0
    ) -> dict[str, Future]:
        """As the real one."""

        def describe(name: str) -> Any:
            topic = self._topic(name)
            partitions = [SimpleNamespace(id=log.partition, leader=node(log.leader)) for log in topic.logs]
            return SimpleNamespace(
                name=name, topic_id=topic.id, is_internal=False, partitions=partitions, authorized_operations=None
            )

        return {name: self._ask(lambda name=name: describe(name), request_timeout) for name in topics.topic_names}

    def describe_cluster(self, include_authorized_operations: bool = False, request_timeout: float = 60.0) -> Future:
        """As the real one."""
        return self._ask(lambda: SimpleNamespace(cluster_id="simulated"), request_timeout)

    def describe_configs(self, resources: list[Any], request_timeout: float = 60.0, **_: Any) -> dict[Any, Future]:
        """As the real one."""

        def describe(resource: Any) -> Any:
            found = {**_DEFAULTS, **self._topic(resource.name).config}
            return {name: SimpleNamespace(name=name, value=value) for name, value in found.items()}

        return {r: self._ask(lambda r=r: describe(r), request_timeout) for r in resources}

    def list_offsets(
        self,
        topic_partition_offsets: dict[TopicPartition, Any],
        isolation_level: Any = None,
        request_timeout: float = 60.0,
        **_: Any,
    ) -> dict[TopicPartition, Future]:
        """As the real one, for ends: all answers come together, and of a leader that gave none an offset of -1001.

        It goes on with the leader epochs that it knew first, and is refused by every later leader.
        """
        committed_only = getattr(isolation_level, "name", "") == "READ_COMMITTED"
        futures = {place: Future() for place in topic_partition_offsets}
        answers: dict[TopicPartition, tuple[Any, Any]] = {}

        def one(place: TopicPartition, epoch: int, reply: Callable[..., None]) -> None:
            log = self.cluster.log(place.topic, place.partition)
            if log is None:
                reply(place, None, KafkaError.UNKNOWN_TOPIC_OR_PART)
            elif log.leader_epoch != epoch:
                reply(place, None, KafkaError.FENCED_LEADER_EPOCH)
            elif log.leader_back <= self.cluster.scheduler.now:
                reply(place, log.stable_end if committed_only else log.end, None)

        def came(place: TopicPartition, offset: int | None, code: int | None) -> None:
            answers[place] = offset, None if code is None else KafkaException(KafkaError(code))
            if len(answers) == len(futures):
                end()

        def end() -> None:
            for place, future in futures.items():
                offset, error = answers.get(place, (-1001, None))
                future.set(SimpleNamespace(offset=offset, timestamp=-1, leader_epoch=None), error)

        here().pass_turn()
        for place in futures:
            log = self.cluster.log(place.topic, place.partition)
            epoch = self._leader_epochs.setdefault((place.topic, place.partition), log.leader_epoch if log else -1)
            self.link(log.leader if log else 0).ask(
                lambda reply, place=place, epoch=epoch: one(place, epoch, reply), came
            )
        self.cluster.scheduler.after(request_timeout, on_process, self.process, end)
        return futures

    def list_consumer_groups(self, request_timeout: float = 60.0, **_: Any) -> Future:
        """As the real one."""
        return self._ask(
            lambda: SimpleNamespace(
                valid=[SimpleNamespace(group_id=name) for name in sorted(self.cluster.groups)], errors=[]
            ),
            request_timeout,
        )

    def describe_consumer_groups(
        self, group_ids: list[str], request_timeout: float = 60.0, **_: Any
    ) -> dict[str, Future]:
        """As the real one."""

        def describe(name: str) -> Any:
            group = self.cluster.group(name)
            members = [
                SimpleNamespace(
                    member_id=seat.member,
                    client_id=seat.client,
                    host="host",
                    group_instance_id=None,
                    assignment=SimpleNamespace(
                        topic_partitions=[TopicPartition(*place) for place in sorted(seat.assignment)]
                    ),
                )
                for seat in group.seats.values()
            ]
            state = ConsumerGroupState.STABLE if group.state == "stable" else ConsumerGroupState.PREPARING_REBALANCING
            return SimpleNamespace(group_id=name, members=members, state=state, coordinator=node(0))

        return {g: self._ask(lambda g=g: describe(g), request_timeout) for g in group_ids}

    def delete_records(
        self, topic_partition_offsets: list[TopicPartition], request_timeout: float = 60.0, **_: Any
    ) -> dict[TopicPartition, Future]:
        """As the real one."""

        def delete(place: TopicPartition) -> Any:
            log = self._topic(place.topic).logs[place.partition]
            log.start = max(log.start, log.end if place.offset < 0 else place.offset)
            return SimpleNamespace(low_watermark=log.start)

        return {p: self._ask(lambda p=p: delete(p), request_timeout) for p in topic_partition_offsets}

    def _topic(self, name: str) -> Any:
        topic = self.cluster.topics.get(name)
        if topic is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return topic


__all__ = ["BROKERS", "AdminClient"]
