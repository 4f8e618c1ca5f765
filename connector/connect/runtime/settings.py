"""The settings of workers and of every connector, under Kafka Connect's names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from ....partitioner.errors import ConfigError
from ..api.java_regex import compiled
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type, Width
from ..config.validators import NonEmptyString, NonEmptyStringWithoutControlChars, Range, Regex, ValidString

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
SIMPLE = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


def below(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings below a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def worker_definition() -> ConfigDef:
    """What both kinds of worker understand."""
    return (
        ConfigDef()
        .define("bootstrap.servers", Type.STRING, importance=HIGH, documentation="The cluster, as for any client.")
        .define("key.converter", Type.STRING, JSON, HIGH, "For connectors that name none; its settings follow below its name.")
        .define("value.converter", Type.STRING, JSON, HIGH, "For connectors that name none; its settings follow below its name.")
        .define("header.converter", Type.STRING, SIMPLE, LOW, "For connectors that name none.")
        .define("offset.flush.interval.ms", Type.LONG, 60_000, LOW, "Between two commits of offsets.", validator=Range(1))
        .define("offset.flush.timeout.ms", Type.LONG, 5_000, LOW, "How long a commit of source offsets may take.", validator=Range(1))
        .define("task.shutdown.graceful.timeout.ms", Type.LONG, 5_000, LOW, "What the worker waits for tasks when it ends.", validator=Range(0))
        .define("listeners", Type.LIST, ["http://localhost:8083"], LOW, "Where the REST listens: one http:// or https:// address; port 0 takes any; empty for none.")
        .define("rest.advertised.url", Type.STRING, None, LOW, "How other workers reach the REST of this one.")
        .define("rest.token", Type.PASSWORD, None, MEDIUM, "What every request must carry: as a bearer token, or as the password of Basic.")
        .define("access.control.allow.origin", Type.STRING, "", LOW, "Other sites whose pages may use the REST, by commas; * for all.")
        .define("access.control.allow.methods", Type.STRING, "", LOW, "What they may do: methods by commas; GET, POST and HEAD if empty.")
        .define("rest.ssl.certificate.location", Type.STRING, None, MEDIUM, "PEM certificate chain of an https:// listener.")
        .define("rest.ssl.key.location", Type.STRING, None, MEDIUM, "PEM key of an https:// listener.")
        .define("rest.ssl.ca.location", Type.STRING, None, MEDIUM, "PEM certificates by which workers trust each other's REST.")
        .define("config.providers", Type.LIST, [], LOW, "Aliases of config providers; `config.providers.<alias>.class` and `.param.*` follow.")
        .define("plugin.path", Type.LIST, [], LOW, "Folders with more plugins: each is what `pip install --target` has filled, or holds such folders.")
        .define("plugin.classes", Type.LIST, [], LOW, "More plugins, as module:Class, beside the installed ones.")
        .define("connector.client.config.override.policy", Type.STRING, "All", LOW, "Whether connectors may set producer.override.* and consumer.override.*.", validator=ValidString("All", "None"))
        .define("exactly.once.source.support", Type.STRING, "disabled", HIGH, "Whether source tasks write records and offsets in one transaction.", validator=ValidString("disabled", "preparing", "enabled"))
        .define("parking.storage.topic", Type.STRING, None, LOW, "Compacted topic that lists parked keys; by default <group.id>-parked, standalone connect-parked.")
        .define("internal.replication.factor", Type.SHORT, -1, LOW, "Of topics that the worker makes; -1 for the cluster's default.")
        .define("restart.failed.tasks.max", Type.INT, 0, LOW, "How often a failed task is started again by itself; 0 for never, as in Kafka Connect.", validator=Range(0))
        .define("restart.failed.tasks.delay.ms", Type.LONG, 10_000, LOW, "The wait before the first such start; it doubles with each.", validator=Range(0))
    )  # fmt: skip


# What Kafka Connect's workers know beside these. A setting of theirs changes nothing here, and is named once.
_OF_JVM_WORKERS = re.compile(
    r"admin\..*|access\.control\..*|admin\.listeners.*|auto\.include\.jmx\.reporter|client\.dns\.lookup|config\.storage\..*|connect\.protocol"
    r"|connections\.max\.idle\.ms|header\.converter\..*|inter\.worker\..*|listeners\.https\..*|metadata\..*|metric.*|offset\.storage\..*"
    r"|plugin\.discovery|rebalance\.timeout\.ms|receive\.buffer\.bytes|reconnect\..*|request\.timeout\.ms|response\.http\..*"
    r"|rest\.(advertised\.(host\.name|port|listener)|extension\.classes)|retry\..*|scheduled\..*|send\.buffer\.bytes"
    r"|socket\..*|status\.storage\..*|task\.shutdown\..*|topic\.(creation\.enable|tracking\..*)|worker\..*"
)
_PREFIXES = ("config.providers.", "consumer.", "header.converter.", "key.converter.", "producer.", "value.converter.")


def without_effect(definition: ConfigDef, given: Mapping[str, str], of_client: Callable[[str], bool]) -> list[str]:
    """A warning for each worker setting that changes nothing here. of_client: whether a name concerns the connection."""
    found = []
    for name in sorted(set(given) - set(definition.keys)):
        if name.startswith(_PREFIXES) or name in ("key.converter", "value.converter") or of_client(name):
            continue
        if _OF_JVM_WORKERS.fullmatch(name):
            found.append(f"the setting {name} of Kafka Connect has no effect here")
            continue
        near = get_close_matches(name, definition.keys, 1)
        found.append(f"there is no setting {name}" + (f": did you mean {near[0]}?" if near else ""))
    return found


def standalone_definition() -> ConfigDef:
    """The settings of `keyorder connect standalone`."""
    return worker_definition().define(
        "offset.storage.file.filename", Type.STRING, importance=HIGH, documentation="The file of source offsets."
    )


def distributed_definition() -> ConfigDef:
    """The settings of `keyorder connect distributed`."""
    return (
        worker_definition()
        .define("group.id", Type.STRING, importance=HIGH, documentation="The workers' group; connectors' groups must differ.")
        .define("config.storage.topic", Type.STRING, importance=HIGH, documentation="Compacted topic of configurations and assignments; one partition.")
        .define("offset.storage.topic", Type.STRING, importance=HIGH, documentation="Compacted topic of source offsets.")
        .define("status.storage.topic", Type.STRING, importance=HIGH, documentation="Compacted topic of states.")
        .define("config.storage.replication.factor", Type.SHORT, -1, LOW, "-1 for the cluster's default.")
        .define("offset.storage.replication.factor", Type.SHORT, -1, LOW, "-1 for the cluster's default.")
        .define("status.storage.replication.factor", Type.SHORT, -1, LOW, "-1 for the cluster's default.")
        .define("offset.storage.partitions", Type.INT, 25, LOW, "When the topic is made.", validator=Range(1))
        .define("status.storage.partitions", Type.INT, 5, LOW, "When the topic is made.", validator=Range(1))
        .define("session.timeout.ms", Type.INT, 10_000, HIGH, "How long a worker may be silent before its tasks go to others.", validator=Range(1))
        .define("heartbeat.interval.ms", Type.INT, 3_000, HIGH, "How often it says that it lives.", validator=Range(1))
        .define("scheduled.rebalance.max.delay.ms", Type.INT, 300_000, LOW, "How long the tasks of a worker that has gone wait for its return.", validator=Range(0))
    )  # fmt: skip


def connector_definition(kind: str) -> ConfigDef:
    """What every connector understands. kind: source or sink."""
    common = (
        ConfigDef()
        .define("name", Type.STRING, importance=HIGH, documentation="Unique among the connectors.", validator=NonEmptyStringWithoutControlChars(), group="Common")
        .define("connector.class", Type.STRING, importance=HIGH, documentation="The plugin.", group="Common")
        .define("connector.plugin.version", Type.STRING, None, MEDIUM, "A version, or a range of them; refused unless the installed one fits.", group="Common")
        .define("tasks.max", Type.INT, 1, HIGH, "The most tasks.", validator=Range(1), group="Common")
        .define("tasks.max.enforce", Type.BOOLEAN, True, LOW, "Whether a connector that makes more tasks fails.", group="Common")
        .define("key.converter", Type.CLASS, None, LOW, "By default the worker's.", group="Common")
        .define("key.converter.plugin.version", Type.STRING, None, LOW, "A version, or a range of them; refused unless the installed one fits.", group="Common")
        .define("value.converter", Type.CLASS, None, LOW, "By default the worker's.", group="Common")
        .define("value.converter.plugin.version", Type.STRING, None, LOW, "A version, or a range of them; refused unless the installed one fits.", group="Common")
        .define("header.converter", Type.CLASS, None, LOW, "By default the worker's.", group="Common")
        .define("header.converter.plugin.version", Type.STRING, None, LOW, "A version, or a range of them; refused unless the installed one fits.", group="Common")
        .define("transforms", Type.LIST, [], LOW, "Aliases of transforms, in order.", group="Transforms")
        .define("predicates", Type.LIST, [], LOW, "Aliases of predicates.", group="Predicates")
        .define("config.action.reload", Type.STRING, "restart", LOW, "Understood for compatibility: placeholders are resolved when a task starts.", validator=ValidString("none", "restart"), group="Common")
        .define("errors.retry.timeout", Type.LONG, 0, MEDIUM, "Milliseconds for which a failed operation is tried again; 0 for none, -1 without end.", validator=Range(-1), group="Error Handling")
        .define("errors.retry.delay.max.ms", Type.LONG, 60_000, MEDIUM, "The longest wait between two tries.", validator=Range(1), group="Error Handling")
        .define("errors.tolerance", Type.STRING, "none", MEDIUM, "none: the task fails; all: the record goes the way of errors.deadletterqueue.policy, or is skipped if there is no dead letter queue; later records of its key go on then.", validator=ValidString("none", "all"), group="Error Handling")
        .define("errors.log.enable", Type.BOOLEAN, False, MEDIUM, "Log each failed operation.", group="Error Handling")
        .define("errors.log.include.messages", Type.BOOLEAN, False, MEDIUM, "With the record's place. Never its content.", group="Error Handling")
    )  # fmt: skip
    if kind == "sink":
        return _looking(
            common.define("topics", Type.LIST, [], HIGH, "The topics, or:", group="Common")
            .define("topics.regex", Type.STRING, "", HIGH, "A regular expression of topics, Java's without look-around, back references and possessive repetitions. Kafka's own topics and keyorder's are never meant.", validator=Regex(subscribed=True), group="Common")
            .define("errors.deadletterqueue.topic.name", Type.STRING, "", MEDIUM, "Where failed records go.", group="Error Handling")
            .define("errors.deadletterqueue.topic.replication.factor", Type.SHORT, 3, MEDIUM, "When it is made.", group="Error Handling")
            .define("errors.deadletterqueue.context.headers.enable", Type.BOOLEAN, False, MEDIUM, "Add __connect.errors.* headers; always done by park-key.", group="Error Handling")
            .define("errors.deadletterqueue.policy", Type.STRING, "park-key", MEDIUM, "park-key: after a failed record all later ones of its key follow it there until the key is released. record: the failed record alone, as in Kafka Connect; later ones of its key overtake it.", validator=ValidString("park-key", "record"), group="Error Handling")
        )  # fmt: skip
    return _looking(
        common.define("topic.creation.groups", Type.LIST, [], LOW, "Aliases of groups; `topic.creation.<alias>.include`, `.exclude`, `.partitions`, `.replication.factor` and settings of the topic follow.", group="Topic Creation")
        .define("topic.creation.default.partitions", Type.INT, None, LOW, "When a topic is missing: its partitions. Without it a topic is made as the brokers make them (auto.create.topics.enable), or waited for.", group="Topic Creation")
        .define("topic.creation.default.replication.factor", Type.SHORT, -1, LOW, "-1 for the cluster's default.", group="Topic Creation")
        .define("exactly.once.support", Type.STRING, "requested", MEDIUM, "required: refuse to run if records and offsets cannot be written in one transaction.", validator=ValidString("requested", "required", ignore_case=True), group="Exactly Once Support")
        .define("transaction.boundary", Type.STRING, "poll", MEDIUM, "Where a transaction ends.", validator=ValidString("poll", "interval", "connector", ignore_case=True), group="Exactly Once Support")
        .define("transaction.boundary.interval.ms", Type.LONG, None, LOW, "For interval; by default offset.flush.interval.ms.", validator=Range(1), group="Exactly Once Support")
        .define("offsets.storage.topic", Type.STRING, None, LOW, "Refused: offsets of all connectors are in the worker's topic.", validator=NonEmptyString(), group="offsets.topic")
    )  # fmt: skip


# How a form for people shows them: place in the group, width, name. A form that is made for Kafka Connect sorts by these.
_LOOKS: dict[str, tuple[int, Width, str]] = {
    "name": (1, Width.MEDIUM, "Connector name"),
    "connector.class": (2, Width.LONG, "Connector class"),
    "connector.plugin.version": (3, Width.MEDIUM, "Connector version"),
    "topics": (4, Width.LONG, "Topics"),
    "topics.regex": (4, Width.LONG, "Topics regex"),
    "tasks.max": (4, Width.SHORT, "Tasks max"),
    "tasks.max.enforce": (5, Width.SHORT, "Enforce tasks max"),
    "key.converter": (6, Width.SHORT, "Key converter class"),
    "key.converter.plugin.version": (7, Width.SHORT, "Key converter version"),
    "value.converter": (8, Width.SHORT, "Value converter class"),
    "value.converter.plugin.version": (9, Width.SHORT, "Value converter version"),
    "header.converter": (10, Width.SHORT, "Header converter class"),
    "header.converter.plugin.version": (11, Width.SHORT, "Header converter version"),
    "transforms": (12, Width.LONG, "Transforms"),
    "predicates": (13, Width.LONG, "Predicates"),
    "config.action.reload": (14, Width.MEDIUM, "Reload action"),
    "errors.retry.timeout": (1, Width.MEDIUM, "Retry timeout"),
    "errors.retry.delay.max.ms": (2, Width.MEDIUM, "Longest retry delay"),
    "errors.tolerance": (3, Width.SHORT, "Error tolerance"),
    "errors.log.enable": (4, Width.SHORT, "Log errors"),
    "errors.log.include.messages": (5, Width.SHORT, "Log places of records"),
    "errors.deadletterqueue.topic.name": (6, Width.MEDIUM, "Dead letter queue topic"),
    "errors.deadletterqueue.topic.replication.factor": (7, Width.MEDIUM, "Dead letter queue replication factor"),
    "errors.deadletterqueue.context.headers.enable": (8, Width.MEDIUM, "Dead letter queue context headers"),
    "errors.deadletterqueue.policy": (9, Width.SHORT, "Dead letter queue policy"),
    "topic.creation.groups": (1, Width.LONG, "Topic creation groups"),
    "topic.creation.default.partitions": (2, Width.SHORT, "Partitions of created topics"),
    "topic.creation.default.replication.factor": (3, Width.SHORT, "Replication factor of created topics"),
    "exactly.once.support": (2, Width.SHORT, "Exactly once support"),
    "transaction.boundary": (3, Width.SHORT, "Transaction boundary"),
    "transaction.boundary.interval.ms": (4, Width.SHORT, "Transaction boundary interval"),
    "offsets.storage.topic": (1, Width.LONG, "Offsets topic"),
}


def _looking(definition: ConfigDef) -> ConfigDef:
    for name in definition.names():
        order, width, display = _LOOKS[name]
        definition.change(name, order=order, width=width, display_name=display)
    return definition


def cross_checks(kind: str, config: Mapping[str, str], parsed: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(setting, error) pairs for settings that contradict each other."""
    found: list[tuple[str, str]] = []
    groups = parsed.get("topic.creation.groups") or []
    if kind == "source" and len(set(groups)) < len(groups):
        found.append(("topic.creation.groups", "A group is given twice."))
    if kind == "sink":
        topics, regex = parsed.get("topics") or [], parsed.get("topics.regex") or ""
        dead = parsed.get("errors.deadletterqueue.topic.name") or ""
        if bool(topics) == bool(regex):
            found += [
                (name, "Must configure exactly one of topics and topics.regex.") for name in ("topics", "topics.regex")
            ]
        if dead and (dead in topics or (regex and compiled(regex).fullmatch(dead))):
            found.append(
                (
                    "topics" if dead in topics else "topics.regex",
                    f"errors.deadletterqueue.topic.name {dead!r} may not be among the topics that are read.",
                )
            )
        if (
            parsed.get("errors.tolerance") == "all"
            and not dead
            and config.get("errors.deadletterqueue.policy") == "park-key"
        ):
            found.append(
                (
                    "errors.deadletterqueue.topic.name",
                    "park-key needs a topic; to skip failed records, and let later ones of their keys go on, leave errors.deadletterqueue.policy out.",
                )
            )
    elif parsed.get("offsets.storage.topic"):
        found.append(("offsets.storage.topic", "A topic per connector is not supported: leave it out."))
    for name in config:
        if name.startswith(("producer.override.", "consumer.override.")) and name.rpartition("override.")[2] in _OWNED:
            found.append((name, "The runtime sets this itself: leave it out."))
    return found  # fmt: skip


_OWNED = ("group.id", "enable.auto.commit", "enable.auto.offset.store", "transactional.id", "enable.ordered.delivery")


def seconds(parsed: Mapping[str, Any], name: str) -> float:
    """A setting in milliseconds, in seconds."""
    value = parsed[name]
    if not isinstance(value, int):
        raise ConfigError(name, repr(value), "give milliseconds")
    return value / 1000
