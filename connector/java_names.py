"""Settings of Java's clients in the words of the client library here: translated, left out with a warning, or refused.

Most names are the same in both. Values may be secrets: none is ever put into an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import lru_cache

from confluent_kafka import Consumer, KafkaException, Producer

from ..partitioner.errors import ConfigError
from .cli.connecting import from_java

_LOG = logging.getLogger("keyorder.connect.settings")
_UNKNOWN = "No such configuration property"
RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# What has no counterpart here and changes no result: left out, and said once.
WITHOUT_COUNTERPART = {
    "auto.include.jmx.reporter", "default.api.timeout.ms", "exclude.internal.topics", "max.block.ms",
    "max.poll.records", "metadata.max.idle.ms", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    "sasl.client.callback.handler.class", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms",
    "security.providers", "socket.connection.setup.timeout.max.ms", "ssl.enabled.protocols", "ssl.engine.factory.class",
    "ssl.keymanager.algorithm", "ssl.keystore.type", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm", "ssl.truststore.type",
}  # fmt: skip
# Java's names of cipher suites are not those of the library: a worker goes by the library's own choice.
_CIPHERS = {"ssl.cipher.suites"}
# Data reaches the clients of a worker as bytes: what these are set to cannot matter.
_SERIALIZERS = {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}
_REFUSED = {
    "interceptor.classes": ("interceptors are classes of Java", "leave it out, or write a transform"),
    "partitioner.class": ("keyorder places keys itself, by linear hashing over murmur2", "leave it out"),
    "group.id": ("a sink's group is connect-<its name>, by which its offsets and gates are found", "leave it out"),
    "transactional.id": ("a source task's transactional id is the worker's to give", "leave it out"),
}
# Java's own partitioners by key: where keys go is keyorder's to say, and records without one are spread as by them.
USUAL_PARTITIONERS = ("", "DefaultPartitioner", "UniformStickyPartitioner")
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
LEVEL = re.compile(r"compression\.(gzip|lz4|zstd)\.level")


class ClientSettings:
    """Translates, and remembers what it has warned of."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def translated(self, given: Mapping[str, str], prefix: str, kind: str) -> dict[str, str]:
        """The client library's settings. prefix: before each name in errors and warnings; kind: producer or consumer.

        Raises ConfigError for a name that cannot be obeyed, with its prefix.
        """
        made: dict[str, str] = {}
        for name, value in given.items():
            if name in _SERIALIZERS:
                continue
            if name in WITHOUT_COUNTERPART or name in _CIPHERS:
                self._warn(f"{prefix}{name}", "has no counterpart in the client library here and is left out")
            elif name in _REFUSED:
                self._refuse(prefix, name, value)
            elif name == "buffer.memory":
                made["queue.buffering.max.kbytes"] = str(max(1, self._number(prefix, name, value) // 1024))
            elif name == "partitioner.ignore.keys":
                if value.strip().lower() == "true":
                    raise ConfigError(f"{prefix}{name}", "a record's key decides its partition", "leave it out")
            elif name == "partition.assignment.strategy":
                made[name] = self._assignors(prefix, value)
            elif (level := LEVEL.fullmatch(name)) is not None:
                if given.get("compression.type", "").strip() == level[1]:
                    made["compression.level"] = value
            else:
                made[RENAMED.get(name, name)] = value
        try:
            made = from_java(made)
        except ConfigError as error:
            raise ConfigError(f"{prefix}{error.setting}", error.problem, error.fix) from None
        for name in [name for name in made if not known(name, kind)]:
            self._warn(f"{prefix}{name}", f"is no setting of a {kind} and is left out")
            del made[name]
        return made

    def _warn(self, name: str, text: str) -> None:
        if name not in self._told:
            self._told.add(name)
            _LOG.warning("the setting %s %s", name, text)

    @staticmethod
    def _refuse(prefix: str, name: str, value: str) -> None:
        if name == "partitioner.class" and value.strip().rpartition(".")[2] in USUAL_PARTITIONERS:
            return
        problem, fix = _REFUSED[name]
        if value.strip():
            raise ConfigError(f"{prefix}{name}", problem, fix)

    @staticmethod
    def _number(prefix: str, name: str, value: str) -> int:
        try:
            return int(value)
        except ValueError:
            raise ConfigError(f"{prefix}{name}", "it is no whole number", "give bytes") from None

    @staticmethod
    def _assignors(prefix: str, value: str) -> str:
        found = []
        for word in (w.strip() for w in value.split(",") if w.strip()):
            short = word.rpartition(".")[2]
            if short not in _ASSIGNORS and word not in _ASSIGNORS.values():
                raise ConfigError(
                    f"{prefix}partition.assignment.strategy",
                    f"there is no {short} here",
                    f"use one of {', '.join(_ASSIGNORS)}",
                )
            found.append(_ASSIGNORS.get(short, word))
        return ",".join(found)


def check(config: Mapping[str, object], prefix: str, kind: str) -> None:
    """Let the client library judge the values. Raises ConfigError with the name of the one that it does not take.

    Together, as a client will get them: `security.protocol` alone is refused where its mechanism is another setting's.
    """
    # Without an address the clients that judge reach nobody.
    left_out = ("enable.ordered.delivery", "bootstrap.servers", "metadata.broker.list")
    theirs = {
        name: value for name, value in config.items() if not name.startswith("keyorder.") and name not in left_out
    }
    if _takes(theirs, kind):
        return
    without = (name for name in theirs if _takes({n: v for n, v in theirs.items() if n != name}, kind))
    alone = (name for name, value in theirs.items() if not _takes({name: value}, kind))
    blamed = next(without, None) or next(alone, None) or ", ".join(theirs)
    raise ConfigError(
        f"{prefix}{blamed}", "the client library does not take its value", "see the library's CONFIGURATION.md"
    )


def _takes(config: Mapping[str, object], kind: str) -> bool:
    try:
        _client(config, kind)
    except (KafkaException, TypeError, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def known(name: str, kind: str) -> bool:
    """Whether the client library has a setting of that name, or it is keyorder's own."""
    if name.startswith("keyorder.") or name == "enable.ordered.delivery":
        return True
    try:
        _client({name: ""}, kind)
    except KafkaException as raised:
        return _UNKNOWN not in raised.args[0].str()
    except (TypeError, ValueError):
        return True
    return True


def _client(config: Mapping[str, object], kind: str) -> None:
    """Make a client that reaches nobody, and forget it."""
    quiet = {**config, "logger": logging.getLogger("keyorder.librdkafka")}
    if kind == "producer":
        Producer(quiet)
    else:
        Consumer({"group.id": "none", **quiet}).close()


CLIENT_SETTINGS = ClientSettings()
