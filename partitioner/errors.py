"""One error tree. The class says whose fault it is; `retriable` says whether the same call may succeed later.

`UsageError`: the call or a setting is wrong, and the text says which and how to mend it.
`PeerError`: the call was right, Kafka or another process was not.
`OrderError`: order or durability cannot be proven, so keyorder stopped before it guessed.
"""

from __future__ import annotations


class KeyorderError(Exception):
    """The root of every error that keyorder raises by itself."""

    retriable: bool = False


class UsageError(KeyorderError):
    """The caller asked for something that cannot be: mend the call or the setting that the text names."""


class PeerError(KeyorderError):
    """Kafka, the network or another process failed; the call itself was right."""


class OrderError(KeyorderError):
    """Order or durability cannot be proven: keyorder stops here and never guesses."""


class ConfigError(UsageError, ValueError):
    """A setting is missing, unknown, refused or contradicts another one."""

    def __init__(self, setting: str, problem: str, fix: str) -> None:
        super().__init__(setting, problem, fix)
        self.setting, self.problem, self.fix = setting, problem, fix

    def __str__(self) -> str:
        return f"{self.setting}: {self.problem}; {self.fix}"


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


class TopicNotFoundError(UsageError, LookupError):
    """The cluster has no topic of that name, or this user may not see it."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} does not exist on this cluster (or this user may not describe it): "
            f"create it with `keyorder topics create --topic {self.topic} --partitions N`"
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


class PartitionRefusedError(UsageError, ValueError):
    """A send named its partition. An explicit partition takes the record out of its key's order.

    active: how many partitions are written now, when the one named is retired; None when none may be named at all.
    """

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
            f"produce(partition={self.partition}) on {self.topic!r} is refused, since keyorder places keys: leave it out, "
            "or set keyorder.allow.explicit.partition=true and order such records yourself"
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


class BrokerUnreachableError(PeerError):
    """No broker answered in time."""

    retriable = True

    def __init__(self, bootstrap_servers: str, detail: str) -> None:
        super().__init__(bootstrap_servers, detail)
        self.bootstrap_servers, self.detail = bootstrap_servers, detail

    def __str__(self) -> str:
        return (
            f"no Kafka broker answered at bootstrap.servers={self.bootstrap_servers!r} ({self.detail}): "
            "check the address, that the broker runs, and its security settings"
        )


class NotAuthorizedError(PeerError):
    """The broker refused an operation: the text names the right that is missing."""

    def __init__(self, operation: str, resource: str, detail: str) -> None:
        super().__init__(operation, resource, detail)
        self.operation, self.resource, self.detail = operation, resource, detail

    def __str__(self) -> str:
        return f"this user may not {self.operation} {self.resource} ({self.detail}): grant it, or use another user"


class KafkaOperationError(PeerError):
    """Kafka answered an operation with an error that is none of the typed ones."""

    def __init__(self, operation: str, detail: str, retriable: bool = False) -> None:
        super().__init__(operation, detail)
        self.operation, self.detail = operation, detail
        self.retriable = retriable

    def __str__(self) -> str:
        return f"{self.operation}: {self.detail}"


class WriterLateError(PeerError):
    """A change was given up because writers did not answer in time. The layout is as it was; try again."""

    retriable = True

    def __init__(self, topic: str, writers: tuple[str, ...], seconds: float) -> None:
        super().__init__(topic, writers, seconds)
        self.topic, self.writers, self.seconds = topic, writers, seconds

    def __str__(self) -> str:
        return (
            f"the change of {self.topic!r} was given up after {self.seconds:.0f} s, the layout is unchanged: "
            f"no READY from {', '.join(self.writers)}; look at these processes, or raise --timeout"
        )


class ControllerFencedError(PeerError):
    """Another controller has taken this topic over."""

    retriable = True

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return f"another controller took over topic {self.topic!r}: look at its timeline before you try again"


class IneligibleWriterError(PeerError):
    """A newer process joined under the same writer id (KIP-903: a stale incarnation is not eligible)."""

    def __init__(self, writer_id: str, reason: str) -> None:
        super().__init__(writer_id, reason)
        self.writer_id, self.reason = writer_id, reason

    def __str__(self) -> str:
        return f"INELIGIBLE_WRITER {self.writer_id!r}: {self.reason}; give each process its own keyorder.writer.id"


class KeyBlockedError(PeerError):
    """An earlier record of this key failed: later ones would overtake it. Send the failed one again first."""

    retriable = True

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(topic, detail)
        self.topic, self.detail = topic, detail

    def __str__(self) -> str:
        return (
            f"an earlier record of this key was not delivered to {self.topic!r} ({self.detail}): this one was not sent, "
            "so that it cannot overtake; send the earlier one again, then this one"
        )


class StaleViewError(PeerError):
    """The control topic could not be read for so long that nothing may be delivered or sent."""

    retriable = True

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(topic, seconds)
        self.topic, self.seconds = topic, seconds

    def __str__(self) -> str:
        return (
            f"the control topic could not be read to its end for {self.seconds:.0f} s, so the layout of {self.topic!r} may have "
            "changed unseen: records wait until it can be (check the leader of the _keyorder partitions)"
        )


class TimelineRegressionError(OrderError):
    """A timeline went backwards or was rewritten: the control topic was lost, truncated or tampered with."""


class IdentityMismatchError(OrderError):
    """The timeline belongs to another topic or cluster (deleted and created again, or a copied control topic)."""

    def __init__(self, topic: str, what: str, expected: str, found: str) -> None:
        super().__init__(topic, what, expected, found)
        self.topic, self.what, self.expected, self.found = topic, what, expected, found

    def __str__(self) -> str:
        return (
            f"the timeline of {self.topic!r} was made for {what_is(self.what)} {self.expected}, but this is {self.found}: "
            f"if it was deleted and created again, run `keyorder topics adopt --topic {self.topic} --again`"
        )


class TruncationError(OrderError):
    """A partition is shorter than what was acknowledged: an unclean election lost records."""

    def __init__(self, topic: str, partition: int, high_watermark: int, acknowledged: int) -> None:
        super().__init__(topic, partition, high_watermark, acknowledged)
        self.topic, self.partition = topic, partition
        self.high_watermark, self.acknowledged = high_watermark, acknowledged

    def __str__(self) -> str:
        return (
            f"{self.topic}[{self.partition}] ends at {self.high_watermark}, but offsets below {self.acknowledged} were "
            "acknowledged: records were lost (unclean leader election?); the change was not made"
        )


class StrayError(OrderError):
    """A record lies where its key did not live, and `keyorder.strays=fail`."""

    def __init__(self, topic: str, partition: int, offset: int, home: int) -> None:
        super().__init__(topic, partition, offset, home)
        self.topic, self.partition, self.offset, self.home = topic, partition, offset, home

    def __str__(self) -> str:
        return (
            f"stray: {self.topic}[{self.partition}]@{self.offset} was written against the layout, its key lives in partition "
            f"{self.home}: find the writer that is not an OrderedProducer; seek past the record, or set keyorder.strays to "
            "deliver or dead-letter"
        )


class GroupResetError(OrderError):
    """The group's offsets contradict each other: some were deleted, expired or set by hand."""

    def __init__(self, group: str, topic: str, detail: str) -> None:
        super().__init__(group, topic, detail)
        self.group, self.topic, self.detail = group, topic, detail

    def __str__(self) -> str:
        return (
            f"group reset: the offsets of group {self.group!r} on {self.topic!r} are not a consistent cut ({self.detail}); "
            f"stop the group and run `keyorder groups reset --group {self.group} --topic {self.topic}`"
        )


class GroupNotEmptyError(OrderError):
    """Offsets of a group with members cannot be set: they would go on from where they are, and commit over it."""

    retriable = True

    def __init__(self, group: str, members: int | None) -> None:
        super().__init__(group, members)
        self.group, self.members = group, members

    def __str__(self) -> str:
        count = "members again" if self.members is None else f"{self.members} member(s)"
        return (
            f"group {self.group!r} has {count}: stop all of them, wait until the group is empty, then set its offsets"
        )


class NotConfirmedError(OrderError):
    """A command that loses records was not confirmed; nothing was done."""

    def __init__(self, topic: str, losing: str) -> None:
        super().__init__(topic, losing)
        self.topic, self.losing = topic, losing

    def __str__(self) -> str:
        return (
            f"not confirmed, nothing was done: {self.losing}; type the topic's name when asked on a terminal, or give "
            f"--confirm {self.topic}"
        )


class ConsentNeededError(OrderError):
    """Re-homing on a topic whose cleaner also deletes by age or size needs an operator's word."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"the cleanup.policy of {self.topic!r} has delete in it: copies keep their age and expire by it, and what had "
            "expired at home may have been newer; consent with --allow-delete-policy, or leave compact alone in it"
        )


class RecordVersionError(OrderError):
    """A control record was written by a newer, incompatible keyorder. where: topic[partition]@offset, where known."""

    def __init__(self, kind: str, found: tuple[int, int], supported: int, where: str = "") -> None:
        super().__init__(kind, found, supported, where)
        self.kind, self.found, self.supported, self.where = kind, found, supported, where

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return (
            f"a {self.kind} record of version {self.found[0]}.{self.found[1]} was found{place}, this keyorder reads "
            f"{self.supported}.x: upgrade keyorder here before going on"
        )


class CorruptRecordError(OrderError):
    """A control record could not be decoded. where: topic[partition]@offset, where known."""

    def __init__(self, detail: str, where: str = "") -> None:
        super().__init__(detail, where)
        self.detail, self.where = detail, where

    def __str__(self) -> str:
        if not self.where:
            return self.detail
        return (
            f"{self.where}: {self.detail}; nothing goes on that depends on it. Write the last good value of that key again "
            "(a null value removes a lease or a READY of a writer that has ended), and start again"
        )


def what_is(what: str) -> str:
    """`topic id` and `cluster id` as they read in a sentence."""
    return {"topic_id": "topic id", "cluster_id": "cluster id"}.get(what, what)
