"""`kafka.*` options as Spark's users write them, as settings of the client library here.

Spark's own source and sink pass them to Kafka's Java client. Most names are the same in librdkafka; the rest are
translated, or refused with what to write instead. Values may be secrets: none is ever put into an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from confluent_kafka import KafkaException

from ..partitioner.errors import ConfigError

_LOG = logging.getLogger("keyorder.streaming")
PREFIX = "kafka."
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# Tuning of the Java client that has no counterpart here and changes no result.
_WITHOUT_COUNTERPART = {
    "max.poll.records",
    "max.block.ms",
    "default.api.timeout.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "sasl.client.callback.handler.class",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.truststore.type",
    "ssl.keystore.type",
    "exclude.internal.topics",
    "check.crcs",
    "auto.include.jmx.reporter",
    "group.protocol",
    "group.remote.assignor",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "partition.assignment.strategy",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "security.providers",
    "socket.connection.setup.timeout.max.ms",
    "ssl.keymanager.algorithm",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
}
# Java's own partitioners by key: where keys go is what this sink is about, and unkeyed rows are spread as by them.
_USUAL_PARTITIONERS = ("DefaultPartitioner", "UniformStickyPartitioner", "")
_REFUSED = {
    "key.serializer": "keys are bytes or strings already",
    "value.serializer": "values are bytes or strings already",
    "key.deserializer": "keys come as bytes: cast them in the query",
    "value.deserializer": "values come as bytes: cast them in the query",
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets live in the checkpoint; see the option keyorder.commit.group",
    "interceptor.classes": "interceptors may change what is read",
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
_SECRET = ("password", "secret", "jaas", "pem", "token", "oauthbearer.config")
_LOGIN = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def client_config(options: Mapping[str, str]) -> dict[str, Any]:
    """Settings for a confluent_kafka client from all `kafka.*` options. Raises ConfigError.

    Rejected names as in Spark's "Structured Streaming + Kafka Integration Guide", section "Kafka Specific
    Configurations".
    """
    given = {name.lower()[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    for name, reason in _REFUSED.items():
        if name in given:
            raise ConfigError(f"{PREFIX}{name}", f"it is not supported: {reason}", "leave it out")
    if not given.get("bootstrap.servers", "").strip():
        raise ConfigError("kafka.bootstrap.servers", "it is missing", 'give it as "host:port[,host:port]"')
    config: dict[str, Any] = {}
    for name, value in given.items():
        if name in _WITHOUT_COUNTERPART:
            _LOG.warning("%s%s has no counterpart in this client and is left out: it changes no result", PREFIX, name)
        elif name == "partitioner.class":
            if value.strip().rpartition(".")[2] not in _USUAL_PARTITIONERS:
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
        elif name == "sasl.jaas.config":
            config.update(_login(value))
        elif name == "buffer.memory":
            config["queue.buffering.max.kbytes"] = max(1, int(value) // 1024)
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
        else:
            config[_RENAMED.get(name, name)] = value
    return config


def check_client(config: Mapping[str, Any], kind: type[Any]) -> None:
    """Let the client library look at the settings in the driver: a task would fail at them after the query has started.

    kind: confluent_kafka.Consumer; one is made and closed again. Raises ConfigError.
    """
    try:
        made = kind({"group.id": "keyorder-check", **config, "log_level": 0})
        made.close()
    except KafkaException as raised:
        text = str(raised.args[0].str())
        unknown = re.search(r'No such configuration property: "([^"]+)"', text)
        if unknown is not None:
            near = get_close_matches(unknown[1], _COMMON, 1, 0.75)
            fix = f"did you mean {PREFIX}{near[0]}?" if near else "use a name of Kafka's Java client or of librdkafka"
            raise ConfigError(f"{PREFIX}{unknown[1]}", "there is no such setting", fix) from None
        name = next((name for name in config if name in text), "bootstrap.servers")
        secrets = [str(value) for key, value in config.items() if any(part in key for part in _SECRET)]
        if any(secret and secret in text for secret in secrets):
            text = "the client library refuses its value"
        raise ConfigError(f"{PREFIX}{name}", text, "correct it") from None


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
