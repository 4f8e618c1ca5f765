"""Errors of the Spark edge, in keyorder's tree."""

from __future__ import annotations

from ..partitioner.errors import OrderError, UsageError


class SourceSchemaError(UsageError, ValueError):
    """A schema was given to a source that has a fixed one."""

    def __str__(self) -> str:
        return "the keyorder source has a fixed schema and cannot be set with a custom one: leave .schema(...) out"


class NoOptionsError(UsageError, ValueError):
    """A source or a sink is asked without any option, as Spark asks them for a table of its catalog."""

    def __init__(self, writing: bool = False) -> None:
        super().__init__(writing)
        self.writing = writing

    def __str__(self) -> str:
        told = (
            f"no options reached the {'sink' if self.writing else 'source'}. Spark keeps those of CREATE TABLE ... USING "
            "keyorder in its catalog and does not give them to a data source written in Python: "
        )
        if self.writing:
            return told + (
                "give them with each query: INSERT INTO the_table WITH ('kafka.bootstrap.servers' = '...', 'topic' = '...') "
                "SELECT ..."
            )
        return told + (
            "use CREATE TEMPORARY VIEW ... USING keyorder OPTIONS (...), or give them with the query, which may be that of "
            "a view: CREATE VIEW ... AS SELECT * FROM the_table WITH ('kafka.bootstrap.servers' = '...', 'subscribe' = '...')"
        )


class DataLossError(OrderError):
    """Records that the query had to read are gone. Not raised with `failOnDataLoss=false`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            "some data may have been lost because it is not available in Kafka any more: it was aged out, or the topic was "
            "deleted before all of it was processed. To go on in such cases set the option failOnDataLoss to false. "
            f"Reason: {self.reason}"
        )


class AvailableNowError(OrderError):
    """What Trigger.AvailableNow was to read changed beneath it; a restart of the query takes new targets."""

    retriable = True

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.detail} while the query runs with Trigger.AvailableNow: restart it, and look whether the topic was deleted"


class CheckpointError(OrderError):
    """A checkpoint holds offsets that this source has not written: it was changed, or is another source's."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def __str__(self) -> str:
        return (
            f"the offsets in the checkpoint cannot be used: {self.detail}. Put the file of the last batch in the checkpoint's "
            "folder offsets back from a copy, or begin with a new checkpointLocation, and set startingOffsets to where the "
            "query was"
        )


class UnknownStartError(OrderError):
    """The first batch of a checkpoint is to be run again, and the checkpoint does not say where it started."""

    def __init__(self, option: str) -> None:
        super().__init__(option)
        self.option = option

    def __str__(self) -> str:
        return (
            f"the first batch of this checkpoint never finished, and where it started is not recorded ({self.option} means "
            'other offsets by now): set startingOffsets to the offsets themselves, such as {"topic":{"0":23}} (Spark\'s own '
            "source has kept them in the checkpoint's file sources/0/0), or begin with a new checkpoint"
        )


class OffsetsMismatchError(UsageError, ValueError):
    """Offsets or times were given for other partitions than the topics have."""

    def __init__(self, option: str, specified: str, assigned: str, hint: str) -> None:
        super().__init__(option, specified, assigned, hint)
        self.option, self.specified, self.assigned, self.hint = option, specified, assigned, hint

    def __str__(self) -> str:
        return (
            f"{self.option}: partitions specified don't match what are assigned. {self.hint} "
            f"Specified: {self.specified} Assigned: {self.assigned}"
        )


class NoOffsetForTimeError(UsageError, ValueError):
    """A partition has no record at or after a starting time, and the strategy for that is `error`."""

    def __init__(self, topic: str, partition: int, timestamp: int) -> None:
        super().__init__(topic, partition, timestamp)
        self.topic, self.partition, self.timestamp = topic, partition, timestamp

    def __str__(self) -> str:
        return (
            f"no offset matched from request of topic-partition {self.topic}-{self.partition} and timestamp {self.timestamp}: "
            "set startingOffsetsByTimestampStrategy to latest, or an earlier time"
        )


class FetchTimeoutError(OrderError):
    """A task got no record of its range in time, though the range says that there is one."""

    retriable = True

    def __init__(self, detail: str, seconds: float) -> None:
        super().__init__(detail, seconds)
        self.detail, self.seconds = detail, seconds

    def __str__(self) -> str:
        return (
            f"cannot fetch {self.detail} in {round(self.seconds * 1000)} milliseconds: "
            "look at the brokers, or raise kafkaConsumer.pollTimeoutMs"
        )


class RecordTimeError(OrderError):
    """A record's time is beyond what Spark's timestamps hold."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        super().__init__(topic, partition, offset)
        self.topic, self.partition, self.offset = topic, partition, offset

    def __str__(self) -> str:
        return (
            f"the record at topic {self.topic} partition {self.partition} offset {self.offset} has a timestamp that overflows "
            "when it becomes one of Spark's, in microseconds: its producer has to give milliseconds. Start behind it with "
            "startingOffsets, and lower the topic's message.timestamp.after.max.ms"
        )


class RangeError(UsageError, ValueError):
    """A batch query is to end before it starts."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(topic, partition, start, end)
        self.topic, self.partition, self.start, self.end = topic, partition, start, end

    def __str__(self) -> str:
        return (
            f"the resolved start offset {self.start} is greater than the resolved end offset {self.end} for topic {self.topic} "
            f"partition {self.partition}: correct startingOffsets or endingOffsets, or look whether the topic was made again"
        )
