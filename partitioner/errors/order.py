"""Order or durability cannot be proven, so keyorder stopped before it guessed."""

from __future__ import annotations

from .roots import OrderError


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
            f"misplaced record at {self.topic}[{self.partition}]@{self.offset}: its key belongs to partition {self.home}, so "
            "its place in the key's order is unknown; find the producer that is not an OrderedProducer, then seek past the "
            "record, or set keyorder.strays to deliver or dead-letter"
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
    """Re-homing on a topic whose cleanup.policy includes delete needs an operator's consent."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic

    def __str__(self) -> str:
        return (
            f"the cleanup.policy of {self.topic!r} includes delete: retention may have deleted a newer record of a key already "
            "from its present partition, and re-homing would then restore an older value; copies keep the time of their "
            "originals, so retention may delete them soon; give --allow-delete-policy to accept both, or set cleanup.policy "
            "to compact alone"
        )


class StockWritersError(OrderError):
    """A change was not begun: producers without keyorder write the topic, or have written its newest records.

    seen: what shows them, in words. consent: how whoever asked for the change accepts it.
    """

    def __init__(
        self, topic: str, seen: str, consent: str = "give the same command with --accept-stock-writers"
    ) -> None:
        super().__init__(topic, seen, consent)
        self.topic, self.seen, self.consent = topic, seen, consent

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} was not changed: {self.seen}, and a producer without keyorder breaks the order of keys that "
            "move. Let it use an OrderedProducer, or stop it (docs/adopt.md). If none writes the topic any more, or if its "
            f"keys may get out of order, {self.consent}"
        )


class MisplacedKeysError(OrderError):
    """A topic without a timeline holds records that no hash explains, or that the hash asked for does not explain.

    sample: what was found, in words. wanted: the hash that was asked for, None when none was.
    """

    def __init__(self, topic: str, partitions: int, sample: str, wanted: str | None = None) -> None:
        super().__init__(topic, partitions, sample, wanted)
        self.topic, self.partitions, self.sample, self.wanted = topic, partitions, sample, wanted

    def __str__(self) -> str:
        why = "no hash explains" if self.wanted is None else f"the hash {self.wanted} does not explain"
        return (
            f"topic {self.topic!r} was not adopted: {why} where its records lie at {self.partitions} partitions "
            f"({self.sample}), so the next records of some keys would be written to another partition than those before. "
            "Copy it into a managed topic with Connect's MirrorConnector (docs/connect-migrate.md), or accept that keys whose "
            "records lie elsewhere may be read out of order: "
            f"`keyorder topics adopt --topic {self.topic} --accept-misplaced`, with --hash to choose one"
        )


class OrphanedTopicError(OrderError):
    """A topic without a timeline holds records of OrderedProducers: `_keyorder` was lost, or the topic is a copy."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic, self.partition, self.offset = topic, partition, offset

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} has no timeline, but {self.topic}[{self.partition}]@{self.offset} has the header "
            "keyorder-epoch: its timeline was lost with the topic _keyorder, or it is a copy of a managed topic. Where its keys "
            "lived is not known, so it is not adopted. Restore _keyorder from a backup, or copy the records into a new managed "
            "topic with Connect's MirrorConnector (docs/connect-migrate.md)"
        )


class NotReleasableError(OrderError):
    """A topic cannot be given back to stock clients now: keys could get out of order. Nothing was changed.

    obstacles: each in a sentence.
    """

    def __init__(self, topic: str, obstacles: tuple[str, ...]) -> None:
        super().__init__(topic, obstacles)
        self.topic, self.obstacles = topic, obstacles

    def __str__(self) -> str:
        return f"topic {self.topic!r} stays under management: " + "; ".join(self.obstacles)


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
            f"{self.where}: {self.detail}; every client that needs this record stops. Write the last good value of that key "
            "again (for a lease or a READY of a writer that has ended, a null value), then restart the client"
        )


def what_is(what: str) -> str:
    """`topic id` and `cluster id` as they read in a sentence."""
    return {"topic_id": "topic id", "cluster_id": "cluster id"}.get(what, what)
