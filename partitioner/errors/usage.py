"""The call or a setting is wrong: the text says which, and how to fix it."""

from __future__ import annotations

from confluent_kafka import KafkaError

from .roots import StockError, UsageError


class ConfigError(UsageError, StockError, ValueError):
    """A setting is missing, unknown, refused or contradicts another one."""

    kafka_code = KafkaError._INVALID_ARG

    def __init__(self, setting: str, problem: str, fix: str) -> None:
        super().__init__(setting, problem, fix)
        self.setting, self.problem, self.fix = setting, problem, fix

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}; {self.fix}"


class NoOffsetError(UsageError, StockError):
    """`auto.offset.reset` is `error`, and there is no offset to begin at: none is committed, or what it names is gone.

    poll() returns it as the error of a message, one for each of these partitions, as confluent-kafka's does.
    """

    kafka_code = KafkaError._AUTO_OFFSET_RESET

    def __init__(self, group: str, topic: str, partitions: tuple[int, ...]) -> None:
        super().__init__(group, topic, partitions)
        self.group, self.topic, self.partitions = group, topic, partitions

    def __str__(self) -> str:
        where = ", ".join(f"{self.topic}[{p}]" for p in self.partitions)
        return (
            f"auto.offset.reset: group {self.group!r} has no offset, or one below the log start, for {where} and the policy is "
            "error; use earliest or latest, or set the group's offsets"
        )


class KeyTypeError(UsageError, TypeError):
    """A record key that is neither bytes nor str: only bytes have a place in a layout."""

    def __init__(self, key: object) -> None:
        super().__init__(type(key).__name__)
        self.type_name = type(key).__name__

    def __str__(self) -> str:
        return f"a record key must be bytes or str, not {self.type_name}: serialize it first"


class LayoutError(UsageError, ValueError):
    """Counts that make no layout (KIP-253: initial <= count)."""


class CountError(UsageError, ValueError):
    """A change was asked for a partition count that it cannot reach."""

    def __init__(self, topic: str, current: int, wanted: int, reason: str) -> None:
        super().__init__(topic, current, wanted, reason)
        self.topic, self.current, self.wanted, self.reason = topic, current, wanted, reason

    def __str__(self) -> str:
        return f"topic {self.topic!r} has {self.current} partitions, {self.wanted} were asked for: {self.reason}"


class TopicNotFoundError(UsageError, StockError, LookupError):
    """The cluster has no topic of that name, or this user may not see it."""

    kafka_code = KafkaError.UNKNOWN_TOPIC_OR_PART

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} does not exist on this cluster (or this user may not describe it): "
            f"create it with `keyorder topics create --topic {self.topic} --partitions N`"
        )


class GroupNotFoundError(UsageError, LookupError):
    """The cluster has no consumer group of that name: it has no members and no committed offsets."""

    def __init__(self, group: str) -> None:
        super().__init__(group)
        self.group = group

    def __str__(self) -> str:
        return (
            f"consumer group {self.group!r} does not exist on this cluster (or this user may not describe it): "
            "`keyorder groups list` shows those that read managed topics"
        )


class UnmanagedTopicError(UsageError):
    """The topic has no timeline yet, and nobody was allowed to begin one."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} is not under management: run `keyorder topics adopt --topic {self.topic}` "
            "with a user that may write the control topics"
        )


class ReleasedTopicError(UsageError):
    """The topic was given back to stock clients by `topics release`: nothing changes or writes it through keyorder.

    released: when and by whom.
    """

    def __init__(self, topic: str, released: str) -> None:
        super().__init__(topic, released)
        self.topic, self.released = topic, released

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} was given back to stock clients ({self.released}): write it with stock producers, or take "
            f"it back with `keyorder topics adopt --topic {self.topic}`"
        )


class PartitionRefusedError(UsageError, StockError, ValueError):
    """A record of a managed topic named its partition. An explicit partition takes the record out of its key's order.

    active: how many partitions are written now, when the one named is retired; None when none may be named at all.
    """

    kafka_code = KafkaError._UNKNOWN_PARTITION

    def __init__(self, topic: str, partition: int, active: int | None = None) -> None:
        super().__init__(topic, partition, active)
        self.topic, self.partition, self.active = topic, partition, active

    def __str__(self) -> str:
        if self.active is not None:
            return (
                f"partition {self.partition} of {self.topic!r} is retired or does not exist: partitions 0 to {self.active - 1} "
                "are written now"
            )
        return (
            f"produce(partition={self.partition}) on {self.topic!r} is refused, since the topic is managed and keyorder places "
            "its keys: leave it out, or set keyorder.allow.explicit.partition=true and order such records yourself"
        )


class AssignmentError(UsageError, ValueError):
    """assign() of a partition without the origins for which it waits."""

    def __init__(self, topic: str, partition: int, origins: tuple[int, ...]) -> None:
        super().__init__(topic, partition, origins)
        self.topic, self.partition, self.origins = topic, partition, origins

    def __str__(self) -> str:
        origins = ", ".join(map(str, self.origins))
        return (
            f"assign() of {self.topic!r} partition {self.partition} without partition {origins}: keys came from there, and the "
            f"group has not processed them yet; assign {origins} too, or set enable.ordered.delivery=false"
        )


class TimelineTooLargeError(UsageError):
    """A change would make the topic's timeline larger than its control record may be. Nothing was begun."""

    def __init__(self, topic: str, size: int, limit: int, epochs: int) -> None:
        super().__init__(topic, size, limit, epochs)
        self.topic, self.size, self.limit, self.epochs = topic, size, limit, epochs

    def __str__(self) -> str:
        return (
            f"the timeline of {self.topic!r} has {self.epochs} epochs; with this change its record could take {self.size} "
            f"bytes, and {self.limit} are allowed (half of max.message.bytes of _keyorder): raise max.message.bytes of "
            "_keyorder, or wait until retention has deleted what lies before the oldest epochs, which are then folded away; "
            "a compacted topic keeps all of them"
        )
