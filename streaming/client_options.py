"""`kafka.*` options as Spark's users write them, as settings of the client library here.

Spark's own source and sink pass them to Kafka's Java client. Most names are the same in librdkafka; the rest are
translated, or refused with what to write instead. Values may be secrets: none is ever put into an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from ..connector.java_names import LEVEL, RENAMED, USUAL_PARTITIONERS, WITHOUT_COUNTERPART
from ..connector.java_names import check as find_refused
from ..connector.java_numbers import fitted, nearest
from ..partitioner.errors import ConfigError

_LOG = logging.getLogger("keyorder.streaming")
PREFIX = "kafka."
# What Spark itself puts among the options of a source or a sink.
_OF_SPARK = {"path", "paths", "checkpointlocation", "queryname", "streamingsourceidentifyingname"}
# No group is joined: what one would be joined with changes nothing.
_OF_GROUPS = {
    "auto.commit.interval.ms", "group.instance.id", "group.protocol", "group.remote.assignor", "heartbeat.interval.ms",
    "max.poll.interval.ms", "partition.assignment.strategy", "session.timeout.ms",
}  # fmt: skip
_REFUSED = {"interceptor.classes": "interceptors may change what is read"}
_REFUSED_BY_SOURCES = {
    "key.deserializer": "keys come as bytes: cast them in the query",
    "value.deserializer": "values come as bytes: cast them in the query",
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets live in the checkpoint; see the option keyorder.commit.group",
}
_REFUSED_BY_SINKS = {
    "key.serializer": "keys are bytes or strings already",
    "value.serializer": "values are bytes or strings already",
}
# Names that a misspelt one may have meant.
_COMMON = (
    "allow.auto.create.topics", "batch.size", "bootstrap.servers", "client.id", "compression.type", "connections.max.idle.ms",
    "delivery.timeout.ms", "fetch.max.bytes", "fetch.min.bytes", "fetch.max.wait.ms", "group.id", "heartbeat.interval.ms",
    "isolation.level", "linger.ms", "max.in.flight.requests.per.connection", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.request.size", "metadata.max.age.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retries", "retry.backoff.ms", "sasl.jaas.config", "sasl.mechanism", "sasl.password",
    "sasl.username", "security.protocol", "session.timeout.ms", "ssl.ca.location", "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm", "ssl.key.location", "ssl.key.password", "ssl.truststore.location",
    "transaction.timeout.ms",
)  # fmt: skip
# What the library calls those that `client_config` translates, beside the ones of `RENAMED`.
_MADE_OF = {
    "buffer.memory": ("queue.buffering.max.kbytes",),
    "sasl.jaas.config": ("sasl.username", "sasl.password"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem",),
    "ssl.keystore.key": ("ssl.key.pem",),
    "ssl.truststore.certificates": ("ssl.ca.pem",),
    "ssl.truststore.location": ("ssl.ca.location",),
}
# The library says one name of a setting, users the other.
_USUAL_NAMES = {"message.timeout.ms": "delivery.timeout.ms"}
_PROTOCOL = "security.protocol"
# Whose values the library says without their names.
_QUOTED = ("sasl.mechanism", "sasl.mechanisms")
_SECRET = ("password", "secret", "jaas", "pem", "token", "oauthbearer.config")
_LOGIN = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def client_config(options: Mapping[str, str], producer: bool = False) -> dict[str, Any]:
    """Settings for a confluent_kafka client from all `kafka.*` options. Raises ConfigError.

    Rejected names as in Spark's "Structured Streaming + Kafka Integration Guide", section "Kafka Specific
    Configurations".
    """
    given = {name.lower()[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    refused, passed_over = (
        (_REFUSED_BY_SINKS, _REFUSED_BY_SOURCES) if producer else (_REFUSED_BY_SOURCES, _REFUSED_BY_SINKS)
    )
    for name, reason in {**_REFUSED, **refused}.items():
        if name in given:
            raise ConfigError(f"{PREFIX}{name}", f"it is not supported: {reason}", "leave it out")
    if not given.get("bootstrap.servers", "").strip():
        raise ConfigError("kafka.bootstrap.servers", "it is missing", 'give it as "host:port[,host:port]"')
    config: dict[str, Any] = {}
    for name, value in given.items():
        if name in WITHOUT_COUNTERPART or name in _OF_GROUPS or name in passed_over:
            _LOG.warning("%s%s has no counterpart in this client and is left out: it changes no result", PREFIX, name)
        elif name == "partitioner.class":
            if value.strip().rpartition(".")[2] not in USUAL_PARTITIONERS:
                raise ConfigError(
                    f"{PREFIX}{name}", "a partitioner of its own would take keys out of their order", "leave it out"
                )
        elif name == "partitioner.ignore.keys":
            if value.strip().lower() == "true":
                raise ConfigError(
                    f"{PREFIX}{name}",
                    "rows of one key would go to any partition",
                    "leave it out, or drop the key column",
                )
        elif name == "default.topic.config":
            raise ConfigError(
                f"{PREFIX}{name}", "it is a dict, and an option is text", "give its settings beside the others"
            )
        elif name == "sasl.jaas.config":
            config.update(_login(value))
        elif (level := LEVEL.fullmatch(name)) is not None:
            if given.get("compression.type", "").strip() == level[1]:
                config["compression.level"] = value
        elif name == "buffer.memory":
            config["queue.buffering.max.kbytes"] = _kilobytes(name, value)
        elif name == "ssl.truststore.location":
            config["ssl.ca.location"] = _pem(name, value, given.get("ssl.truststore.type", ""))
        elif name == "ssl.truststore.certificates":
            config["ssl.ca.pem"] = value
        elif name == "ssl.truststore.password":
            continue  # a PEM file has none
        elif name == "ssl.keystore.certificate.chain":
            config["ssl.certificate.pem"] = value
        elif name == "ssl.keystore.key":
            config["ssl.key.pem"] = value
        elif name == "ssl.endpoint.identification.algorithm":
            config[name] = value.strip() or "none"
        elif name == "isolation.level":
            config[name] = value.strip().lower()  # the client library takes any case; the driver looks at it, too
        elif name == "group.id" and not value.strip():
            _LOG.warning("%s%s is empty and is left out: no group is joined", PREFIX, name)
        else:
            config[RENAMED.get(name, name)] = _taken_as(name, value)
    return fitted(config, consumer=not producer)


def given_names(options: Mapping[str, str]) -> dict[str, str]:
    """Which `kafka.*` option each setting of `client_config` comes from, without the prefix; only where it has another name."""
    names: dict[str, str] = {}
    for option in options:
        if option.lower().startswith(PREFIX):
            name = option.lower()[len(PREFIX) :]
            made = ("compression.level",) if LEVEL.fullmatch(name) else _MADE_OF.get(name, (RENAMED.get(name, name),))
            names.update(dict.fromkeys(made, name))
    return {theirs: name for theirs, name in names.items() if theirs != name}


def _taken_as(name: str, value: str) -> str:
    """A number of Java's clients as the client library takes it."""
    near = str(nearest(RENAMED.get(name, name), value))
    if near != value:
        _LOG.warning("%s%s=%s is beyond what the client library takes: it is %s", PREFIX, name, value, near)
    return near


def refuse_misspelt(given: Iterable[str], known: Collection[str]) -> None:
    """A misspelt option would quietly change what is done; one that resembles none is for somebody else, as in Spark.

    Raises ConfigError for the first of `given` that is meant for keyorder and not in `known`; `kafka.*` is passed over.
    """
    lower = {name.lower(): name for name in known}
    for name in given:
        if name.lower() in lower or name.lower().startswith(PREFIX) or name.lower() in _OF_SPARK:
            continue
        near = get_close_matches(name.lower(), lower, 1, 0.8)
        if near:
            raise ConfigError(name, "there is no such option", f"did you mean {lower[near[0]]}?")
        if name.lower().startswith("keyorder."):
            ours = ", ".join(n for n in known if n.startswith("keyorder."))
            raise ConfigError(name, "there is no such option", f"keyorder's own are {ours}")


def check_client(config: Mapping[str, Any], producer: bool = False, names: Mapping[str, str] | None = None) -> None:
    """Let the client library look at the settings in the driver: a task would fail at them after the query has started.

    config: of a consumer, or of a producer; `keyorder.*` among them is passed over. names: as by `given_names`.
    Raises ConfigError.
    """
    theirs = {name: value for name, value in config.items() if not name.startswith("keyorder.")}
    try:
        _make(theirs, producer)
    except KafkaException as raised:
        text = str(raised.args[0].str()).strip()
    except (TypeError, ValueError) as raised:
        text = str(raised)
    else:
        return
    unknown = re.search(r'No such configuration property: "([^"]+)"', text)
    if unknown is not None:
        near = get_close_matches(unknown[1], _COMMON, 1, 0.75)
        fix = f"did you mean {PREFIX}{near[0]}?" if near else "use a name of Kafka's Java client or of librdkafka"
        raise ConfigError(f"{PREFIX}{unknown[1]}", "there is no such setting", fix)
    given = {name: usual for name, usual in _USUAL_NAMES.items() if name not in theirs} | dict(names or {})
    blamed = _blamed(theirs, producer, text)
    secrets = [str(value) for name, value in theirs.items() if _is_secret(name)]
    if any(secret and secret in text for secret in secrets):
        text = "the client library refuses its value"
    for name, usual in given.items():
        text = text.replace(name, usual)
    # Of two numbers that do not fit each other, one may be a default of ours.
    values = {given.get(name, name): str(value).strip() for name, value in theirs.items() if not _is_secret(name)}
    numbers = [f"{name}={values[name]}" for name in re.findall("`([^`]+)`", text) if values.get(name, "").isdigit()]
    text += f" ({', '.join(numbers)})" if len(numbers) > 1 else ""
    raise ConfigError(f"{PREFIX}{given.get(blamed, blamed)}", text, "correct it")


def _blamed(config: Mapping[str, Any], producer: bool, text: str) -> str:
    """The setting without which the library takes the others, or the one that it does not take even alone."""
    # Without a protocol it looks at no key and no mechanism; what the sink sets itself is no fault of the application's.
    last = (_PROTOCOL, "transactional.id", "enable.idempotence", "partitioner")
    ordered = {name: config[name] for name in sorted(config, key=lambda name: name in last)}
    ordered.setdefault("log_level", 0)  # of settings that are left out on trial nobody has to be warned
    try:
        find_refused(ordered, "", "producer" if producer else "consumer")
    except ConfigError as refused:
        if refused.setting in config and refused.setting != _PROTOCOL:
            return refused.setting
        # More than one is wrong, or none is but with the protocol: the first that the library speaks of.
        found = (name for name, value in config.items() if name in text or (name in _QUOTED and str(value) in text))
        return next(found, refused.setting if refused.setting in config else "bootstrap.servers")
    return "bootstrap.servers"


def _is_secret(name: str) -> bool:
    return any(part in name for part in _SECRET)


def _make(config: Mapping[str, Any], producer: bool) -> None:
    """A client that is forgotten again. Raises KafkaException, and TypeError or ValueError for what is no text."""
    if producer:
        Producer({**config, "log_level": 0})
    else:
        Consumer({"group.id": "keyorder-check", **config, "log_level": 0}).close()


def _kilobytes(name: str, value: str) -> int:
    try:
        return max(1, int(value) // 1024)
    except ValueError:
        raise ConfigError(f"{PREFIX}{name}", f"{value!r} is no whole number", "give bytes") from None


def _pem(name: str, path: str, kind: str) -> str:
    if path.lower().endswith((".jks", ".p12", ".pfx")) or kind.upper() in ("JKS", "PKCS12"):
        raise ConfigError(
            f"{PREFIX}{name}",
            "a Java key store cannot be read without Java",
            "export the certificates as PEM (keytool -exportcert -rfc) and name that file",
        )
    return path


def _login(text: str) -> dict[str, str]:
    """User and password out of a JAAS line; the line itself never reaches an error."""
    found = {m[1].lower(): next(g for g in m.groups()[1:] if g is not None) for m in _LOGIN.finditer(text)}
    if "username" not in found or "password" not in found:
        raise ConfigError(
            "kafka.sasl.jaas.config",
            "it names no username and password",
            "use PlainLoginModule or ScramLoginModule, or the client library's own settings, such as kafka.sasl.username",
        )
    return {f"sasl.{name}": re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password")}
