"""What to do with a stray: a record that lies where its key did not live, written by a late or a foreign writer.

`deliver` (the default) hands it to the application where it is found, `fail` stops, `dead-letter` moves it to a topic.
In each case it is counted and, for the first of a partition and each tenfold of that, logged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ....partitioner.errors import BrokerUnreachableError, StrayError, TopicNotFoundError
from ....partitioner.routing import HINT_HEADER
from ...config import connection_of
from ...guarded_logger import GuardedLogger
from ...kafka_errors import meant, translate
from ...library_calls import shielded
from ...messages import Place, offset_of, place_of

_LOG = GuardedLogger("keyorder.strays")
_TIMEOUT = 30.0
HEADER_PREFIX = "keyorder-stray-"


class StrayPolicy(str, Enum):
    """`keyorder.strays`."""

    DELIVER = "deliver"
    FAIL = "fail"
    DEAD_LETTER = "dead-letter"


class Strays:
    """Counts a consumer's strays and treats them. Used by the polling thread alone.

    dead_letter_topic: where they go under DEAD_LETTER; it has to exist.
    """

    def __init__(self, config: Mapping[str, Any], group: str, policy: StrayPolicy, dead_letter_topic: str) -> None:
        self._config, self._group = dict(config), group
        self._servers = str(config.get("bootstrap.servers"))
        self._policy, self._topic = policy, dead_letter_topic
        self._producer: Producer | None = None
        # What the broker has not acknowledged, by where it was found.
        self._letters: dict[tuple[str, int, int], Message] = {}
        self._errors: list[KafkaError] = []
        self.counts: Counter[Place] = Counter()

    @property
    def delivers(self) -> bool:
        """Whether strays go to the application."""
        return self._policy is StrayPolicy.DELIVER

    def found(self, message: Message, home: int, epoch: int) -> None:
        """Treat one stray, once. home: where its key lives in the newest `epoch`.

        Raises StrayError under `fail`, again for as long as the record is there. Under `dead-letter` `settle` has to be
        called before anything behind it is given out.
        """
        place = place_of(message)
        if self._policy is StrayPolicy.FAIL:
            self._log(place, offset_of(message), home, 1)
            raise StrayError(*place, offset_of(message), home)
        self.counts[place] += 1
        self._log(place, offset_of(message), home, self.counts[place])
        if self._policy is StrayPolicy.DEAD_LETTER:
            self._keep(message, home, epoch)

    def by_topic(self) -> Counter[str]:
        """How many were found, by topic. Any thread may ask."""
        found: Counter[str] = Counter()
        for (topic, _), count in list(self.counts.items()):
            found[topic] += count
        return found

    @property
    def stop(self) -> bool:
        """Whether a stray ends delivery: all before it has to be given out first."""
        return self._policy is StrayPolicy.FAIL

    @property
    def pending(self) -> bool:
        """Whether a dead letter is not acknowledged: nothing may be committed past it."""
        return bool(self._letters)

    def settle(self) -> None:
        """Wait until every dead letter is acknowledged: only then may a position pass it.

        Raises BrokerUnreachableError or what the broker said; called again, it sends those anew.
        """
        if not self._letters:
            return
        self.check()
        try:
            self._flush()  # what a call that was broken off has left on its way
            for found_at, message in list(self._letters.items()):
                self._hand_over(found_at, message)
            self._flush()
        except (KafkaException, SystemError) as raised:
            error = meant(raised)
            if error.fatal() or error.code() == KafkaError._FATAL:
                # This producer takes nothing more. Another one may: a right that lacked is granted, an id was lost.
                self._producer, self._errors = None, []
            raise translate(error, "write", f"topic {self._topic}", self._servers) from raised

    def check(self) -> None:
        """See that the dead-letter topic is there, before the first record. Raises TopicNotFoundError and kin."""
        if self._policy is not StrayPolicy.DEAD_LETTER or self._producer is not None:
            return
        producer = Producer(
            {
                **connection_of(self._config),
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "message.max.bytes": 1_000_000_000,  # what a topic takes is for its broker to say
            }
        )
        try:
            found = producer.list_topics(self._topic, timeout=_TIMEOUT).topics.get(self._topic)
        except KafkaException as raised:
            raise translate(raised.args[0], "describe", f"topic {self._topic}", self._servers) from raised
        if found is None:
            raise TopicNotFoundError(self._topic)
        if found.error is not None:
            raise translate(found.error, "describe", f"topic {self._topic}", self._servers)
        self._producer = producer

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these from now on."""
        if "sasl.username" in self._config:
            self._config |= {"sasl.username": username, "sasl.password": password}
        if self._producer is not None:
            self._producer.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Release the producer; what was not acknowledged was not committed either, and is found again."""
        self._producer = None  # its close() would wait for that, and tell of a fatal error

    def _keep(self, message: Message, home: int, epoch: int) -> None:
        topic, partition = place_of(message)
        about = {
            "topic": topic,
            "partition": partition,
            "offset": offset_of(message),
            "timestamp": message.timestamp()[1],
            "group": self._group,
            "home": home,
            "epoch": epoch,
        }
        # The hint speaks of this topic's epochs: in another one it would be taken for a lost timeline's.
        own: list[Any] = [header for header in message.headers() or [] if header[0] != HINT_HEADER]
        headers = [*own, *((HEADER_PREFIX + k, str(v).encode()) for k, v in about.items())]
        message.set_headers(headers)
        self._letters[topic, partition, offset_of(message)] = message

    def _hand_over(self, found_at: tuple[str, int, int], message: Message) -> None:
        assert self._producer is not None

        @shielded
        def delivered(error: KafkaError | None, _: Message) -> None:
            # The library may lose this call, to a signal or a fatal error: then the letter stays, and is sent once more.
            if error is None:
                self._letters.pop(found_at, None)
            else:
                self._errors.append(error)

        while True:
            try:
                self._producer.produce(
                    self._topic, message.value(), message.key(), on_delivery=delivered, headers=message.headers()
                )
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as refused:
                if refused.args[0].code() == KafkaError._FATAL:
                    self._producer.poll(0.1)  # raises what this error was
                raise

    def _flush(self) -> None:
        assert self._producer is not None
        left = self._producer.flush(_TIMEOUT)
        if self._errors:
            error, self._errors = self._errors[0], []
            raise translate(error, "write", f"topic {self._topic}", self._servers)
        if left:
            raise BrokerUnreachableError(self._servers, f"write {left} dead letter(s) to topic {self._topic}")

    def _log(self, place: Place, offset: int, home: int, count: int) -> None:
        if str(count).strip("0") == "1":
            _LOG.warning(
                "misplaced record number %d in %s[%d], at offset %d: its key belongs to partition %d (keyorder.strays=%s). "
                "A producer that is not an OrderedProducer wrote it, or one whose lease had ended; keyorder doctor counts them",
                count, *place, offset, home, self._policy.value,
            )  # fmt: skip
