"""`kafka.*` options as Spark's users write them, as settings of the client library here.

Spark's own source and sink pass them to Kafka's Java client. Most names are the same in librdkafka; the rest are
translated, or refused with what to write instead. Values may be secrets: none is ever put into an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from ..partitioner.errors import ConfigError

_LOG = logging.getLogger("keyorder.streaming")
PREFIX = "kafka."
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
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
}
_REFUSED = {
    "key.serializer": "keys are bytes or strings already",
    "value.serializer": "values are bytes or strings already",
    "key.deserializer": "keys come as bytes: cast them in the query",
    "value.deserializer": "values come as bytes: cast them in the query",
    "auto.offset.reset": "use the option startingOffsets",
    "enable.auto.commit": "offsets live in the checkpoint; see the option keyorder.commit.group",
    "interceptor.classes": "interceptors may change what is read",
}
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
            _LOG.info("%s%s has no counterpart in this client and is left out", PREFIX, name)
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
