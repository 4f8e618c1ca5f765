"""One dict of dotted names, as in confluent-kafka. Ours begin with `keyorder.`; the rest passes through.

Settings that keyorder owns are refused with the reason, never silently replaced.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from ..partitioner.errors import ConfigError
from ..partitioner.gates.membership import longest_silence
from ..partitioner.writers.lease import LeaseTerms
from .guarded_logger import GuardedLogger
from .settings import CONSUMER, PRODUCER, boolean, milliseconds, values, whole
from .shared_token import SharedToken

# What a client of ours needs to reach the same cluster as the user's client, and no more.
_CONNECTION = (
    "bootstrap.servers",
    "metadata.broker.list",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "socket.",
    "broker.address.",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "reconnect.",
    "connections.",
    "enable.metrics.push",
    "https.",
    "oauth_cb",
    "resolve_cb",
    "allow.auto.create.topics",
)
# The library's default lets a reader that has emptied a full queue wait for a whole second before it fetches again.
REFILL: Mapping[str, Any] = {"fetch.queue.backoff.ms": 20}
_BACKOFF, _BACKOFF_MAX, _SOON_MS = "reconnect.backoff.ms", "reconnect.backoff.max.ms", 20
# Silent unless the application sets logging up, as is usual for a library.
_LOGGER = GuardedLogger("keyorder.librdkafka")
logging.getLogger("keyorder").addHandler(logging.NullHandler())
# Seconds: how long a topic that was just made may stay unknown to the broker that is asked; beyond it, it is not there.
JUST_MADE = 10.0
_PROPAGATION = "topic.metadata.propagation.max.ms"
_OF_TOPICS = "default.topic.config"


def connection_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by which another client reaches the same cluster as the same user."""
    own = {k: v for k, v in config.items() if k.startswith(_CONNECTION)}
    # The client library opens a new client's second connection no sooner than half of this after the first one.
    if _BACKOFF_MAX not in own:
        own.setdefault(_BACKOFF, _SOON_MS)
    own["logger"] = _LOGGER
    return own


def at_leaders(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same, but without `client.rack`: what leaders say of the ends of their logs is read from them as well.

    A follower has it later, by up to half a second in a quiet log, and whoever reads up to an end would wait for that.
    """
    return {name: value for name, value in connection_of(config).items() if name != "client.rack"}


def given(config: Mapping[str, Any] | None, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """A client's settings as the client library takes them: a mapping, names, or both. TypeError for neither.

    A name that is no text is made one, so that the library says that it knows no such setting.
    """
    if config is None and not named:
        raise TypeError("expected configuration dict")
    return {str(name): value for name, value in {**({} if config is None else config), **named}.items()}


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with those of `default.topic.config`, a dict of its own among them, beside the others.

    So the client library does it, where they win. In there nobody would see them: what is refused would pass, and what keyorder
    sets for itself would be overruled. Raises ConfigError.
    """
    settings = dict(config)
    if _OF_TOPICS in settings:
        nested = settings.pop(_OF_TOPICS)
        if not isinstance(nested, Mapping):
            raise ConfigError(
                _OF_TOPICS, f"{type(nested).__name__} is not a dict", "give its settings beside the others"
            )
        for name, value in nested.items():
            settings.pop(str(name), None)  # to the end, behind other names of the same setting: the last one counts
            settings[str(name)] = value
        settings.pop(_OF_TOPICS, None)
    return settings


def chosen(config: Mapping[str, Any], name: str, default: str) -> str:
    """A setting whose value is one of a few words, as the client library reads it: in any case, and behind white space."""
    return str(config.get(name, default)).lstrip().lower()


def _commit_interval(config: Mapping[str, Any]) -> float:
    """`auto.commit.interval.ms` in seconds. As in the client library, 0 leaves the commits to revocations and to close()."""
    name = "auto.commit.interval.ms"
    return float("inf") if str(config.get(name)) == "0" else milliseconds(config, name, 5_000)


def _propagation(theirs: Mapping[str, Any]) -> float:
    """`topic.metadata.propagation.max.ms` in seconds; what is no number is for the client library to refuse.

    Its own default is 30 s, but it does not keep the caller of produce() waiting.
    """
    value = str(theirs.get(_PROPAGATION, JUST_MADE * 1000))
    try:
        return max(0.0, float(value) / 1000)
    except ValueError:
        return 0.0


def split(config: Mapping[str, Any], known: Mapping[str, object], what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(ours, the client library's). Raises ConfigError for an unknown `keyorder.` name or a missing address."""
    if not isinstance(config, Mapping):
        raise ConfigError("config", f"{type(config).__name__} is not a dict", "give one dict of dotted names")
    config = flat(config)
    ours = {k: v for k, v in config.items() if k.startswith("keyorder.") or k in known}
    for name in ours:
        if name not in known:
            raise ConfigError(name, f"{what} has no such setting", f"known are {', '.join(sorted(known))}")
    theirs = {k: v for k, v in config.items() if k not in ours}
    if not (theirs.get("bootstrap.servers") or theirs.get("metadata.broker.list")):
        raise ConfigError("bootstrap.servers", "it is missing", 'give it as "host:port[,host:port]"')
    token = theirs.get("oauth_cb")
    if callable(token) and not isinstance(token, SharedToken):
        theirs["oauth_cb"] = SharedToken(token)
    return ours, theirs


def _metrics_at(ours: Mapping[str, Any], value: Mapping[str, Any]) -> tuple[str, int] | None:
    """(host, port) of the metrics, None where they are not served. Raises ConfigError."""
    port = value["keyorder.metrics.port"]
    if port is None and "keyorder.metrics.host" in ours:
        raise ConfigError("keyorder.metrics.host", "without a port nothing is served", "set keyorder.metrics.port too")
    return None if port is None else (value["keyorder.metrics.host"], port)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What an OrderedProducer adds to a Producer's settings. Durations in seconds.

    writer_id: names this process in the in-sync writer set; a random one by default.
    adopt: bring a topic without a timeline under management on first use.
    allow_explicit_partition: let `partition=` pass; such records are outside every key's order.
    control_timeout: how long the first send to a topic may wait for the control topics.
    hold_limit, hold_limit_bytes: the most that is held back during a change before produce() raises BufferError.
    most_bytes: the largest record.
    propagation: how long a topic that is not there may be one that was just made, of which not every broker has heard.
    arrow_native: produce_arrow() uses the C library's calls where they can be had.
    on_delivery: for records without a callback of their own. only_errors: callbacks hear of failures alone.
    metrics_at: host and port of its metrics, None: not served.
    """

    writer_id: str | None
    adopt: bool
    allow_explicit_partition: bool
    control_timeout: float
    hold_limit: int
    hold_limit_bytes: int
    most_bytes: int
    terms: LeaseTerms
    request_timeout: float
    transactional_id: str | None
    transaction_timeout_ms: int
    propagation: float = 0.0
    arrow_native: bool = True
    on_delivery: Callable[..., None] | None = None
    only_errors: bool = False
    metrics_at: tuple[str, int] | None = None


# How much longer than it must be a lease is that follows a long delivery time-out: a renewal may take a while to be read back.
_LEASE_SLACK = 10.0
_DELIVERY_TIMEOUT = ("message.timeout.ms", "delivery.timeout.ms")
_PARTITIONERS = ("murmur2_random", "murmur2")
_OTHER_PARTITIONERS = ("random", "consistent", "consistent_random", "fnv1a", "fnv1a_random")


def producer_settings(config: Mapping[str, Any]) -> tuple[ProducerSettings, dict[str, Any]]:
    """Our settings and the client library's for an OrderedProducer. Raises ConfigError."""
    ours, theirs = split(config, PRODUCER, "an OrderedProducer")
    value = values(PRODUCER, ours)
    _refuse_producer_options(theirs)
    on_delivery = theirs.pop("on_delivery", None)
    if on_delivery is not None and not callable(on_delivery):
        raise ConfigError("on_delivery", f"{on_delivery!r} is not callable", "give a function of (error, message)")
    # The client library would keep the reports from us as well, and with them the count of what is on the way.
    only_errors = boolean(theirs, "delivery.report.only.error", False)
    theirs.pop("delivery.report.only.error", None)
    timeout_name = _last_of(_DELIVERY_TIMEOUT, theirs)
    terms = _lease_terms(ours, value, theirs, timeout_name)
    settings = ProducerSettings(
        writer_id=value["keyorder.writer.id"],
        adopt=value["keyorder.adopt"],
        allow_explicit_partition=value["keyorder.allow.explicit.partition"],
        control_timeout=value["keyorder.control.timeout.ms"],
        hold_limit=whole(theirs, "queue.buffering.max.messages", 100_000) or sys.maxsize,
        hold_limit_bytes=whole(theirs, "queue.buffering.max.kbytes", 1_048_576) * 1024,
        most_bytes=whole(theirs, "message.max.bytes", 1_000_000),
        terms=terms,
        request_timeout=milliseconds(theirs, "request.timeout.ms", 30_000),
        transactional_id=theirs.get("transactional.id"),
        transaction_timeout_ms=whole(theirs, "transaction.timeout.ms", 60_000),
        propagation=_propagation(theirs),
        arrow_native=value["keyorder.arrow.native"],
        on_delivery=on_delivery,
        only_errors=only_errors,
        metrics_at=_metrics_at(ours, value),
    )
    theirs[timeout_name] = round(terms.delivery_timeout * 1000)
    theirs["enable.idempotence"] = True
    theirs["partitioner"] = "murmur2_random"
    theirs.pop("acks", None)
    theirs.pop("request.required.acks", None)
    return settings, theirs


def _last_of(names: tuple[str, ...], theirs: dict[str, Any]) -> str:
    """Which of the names of one setting counts: the last one given, as in the client library. The others are taken out."""
    last = next((name for name in reversed(theirs) if name in names), names[-1])
    for name in names:
        if name != last:
            theirs.pop(name, None)
    return last


def _lease_terms(
    ours: Mapping[str, Any], value: Mapping[str, Any], theirs: Mapping[str, Any], timeout_name: str
) -> LeaseTerms:
    """The lease follows the delivery time-out, unless it was given too: a record must not outlive the lease it was sent under."""
    # The library lowers its own default below a transaction's time-out; ours has to do the same.
    transaction_timeout = whole(theirs, "transaction.timeout.ms", 60_000) if theirs.get("transactional.id") else 60_000
    delivery = milliseconds(theirs, timeout_name, min(20_000, transaction_timeout))
    renew_interval = value["keyorder.lease.renew.interval.ms"]
    margin = value["keyorder.lease.margin.ms"]
    least = renew_interval + delivery + margin + _LEASE_SLACK
    lease = value["keyorder.lease.ms"]
    return LeaseTerms(
        lease=lease if "keyorder.lease.ms" in ours else max(lease, least),
        renew_interval=renew_interval,
        delivery_timeout=delivery,
        margin=margin,
    )


def _refuse_producer_options(theirs: Mapping[str, Any]) -> None:
    for name in ("acks", "request.required.acks"):
        if str(theirs.get(name, "all")).lower() not in ("all", "-1"):
            raise ConfigError(
                name,
                f"{theirs[name]!r} lets acknowledged records vanish, and with them a cut",
                "leave it out: it is all",
            )
    if not boolean(theirs, "enable.idempotence", True):
        raise ConfigError("enable.idempotence", "without it retries overtake each other", "leave it out: it is true")
    partitioner = str(theirs.get("partitioner", "murmur2_random"))
    if partitioner not in _PARTITIONERS:
        problem = f"{partitioner!r} cannot be used: keyorder places keys by the topic's own hash"
        if partitioner not in _OTHER_PARTITIONERS:
            problem = (
                f'Invalid value for configuration property "partitioner": {partitioner}'  # the client library's words
            )
        raise ConfigError("partitioner", problem, "leave it out")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What an OrderedConsumer adds to a Consumer's settings. Durations in seconds.

    ordered: False switches the gates off for this client, never the routing.
    auto_commit: offsets of processed records are committed every auto_commit_interval.
    auto_store: a record counts as processed when poll() is called again after it was returned.
    on_commit: called with (error, partitions) after every commit, as confluent_kafka does.
    hold_limit: records of one partition held in memory behind a closed gate before the partition is paused.
    gate_keys: hold single keys at a closed gate, not the partition.
    early_release: let go of keys that have nothing unread in the origin; early_release_keys: how many it may keep in mind.
    arrow_native: consume_arrow() uses the C library's calls where they can be had.
    strays: deliver, fail or dead-letter; dead_letter_topic: for the last of them.
    classic: a member of a classic group, not of one of KIP-848.
    cooperative: a member of a classic group that keeps its partitions while the group rebalances.
    growth_interval: seconds between two looks at the subscribed topics' counts; None: only when a timeline changes.
    static: a classic group's static member, which comes back without a rebalance.
    silence: how long nobody may have polled before a member of the group doubts that it still is one.
    propagation: how long a topic that is not there may be one that was just made, of which not every broker has heard.
    metrics_at: host and port of its metrics, None: not served.
    """

    group: str
    ordered: bool
    auto_commit: bool
    auto_commit_interval: float
    auto_store: bool
    start_at_latest: bool | None
    partition_eof: bool
    control_timeout: float
    hold_limit: int
    gate_keys: bool
    early_release: bool
    early_release_keys: int
    incremental: bool
    classic: bool
    cooperative: bool
    growth_interval: float | None
    static: bool
    arrow_native: bool
    strays: str
    dead_letter_topic: str
    on_commit: Callable[[KafkaError | None, list[TopicPartition]], None] | None
    silence: float
    propagation: float = 0.0
    metrics_at: tuple[str, int] | None = None


_REFRESH = "topic.metadata.refresh.interval.ms"


def consumer_settings(config: Mapping[str, Any]) -> tuple[ConsumerSettings, dict[str, Any]]:
    """Our settings and the client library's for an OrderedConsumer. Raises ConfigError."""
    ours, theirs = split(config, CONSUMER, "an OrderedConsumer")
    value = values(CONSUMER, ours)
    group = theirs.get("group.id")
    if not str(group or "").strip():  # the library ends the process at one of spaces
        raise ConfigError("group.id", "group.id must be set", "name the consumer group whose positions open the gates")
    reset = chosen(theirs, "auto.offset.reset", "latest")
    known = {"latest": True, "largest": True, "end": True, "earliest": False, "smallest": False, "beginning": False}
    known_or_error: dict[str, bool | None] = {**known, "error": None}
    if reset not in known_or_error:
        raise ConfigError("auto.offset.reset", f"{reset!r} is not a policy", "use earliest, latest or error")
    strategy = str(theirs.get("partition.assignment.strategy", ""))
    on_commit = theirs.pop("on_commit", None)
    if on_commit is not None and not callable(on_commit):
        raise ConfigError("on_commit", f"{on_commit!r} is not callable", "give a function of (error, partitions)")
    strays, dead_letter_topic = _strays(value)
    classic = chosen(theirs, "group.protocol", "classic") != "consumer"
    gate_keys = value["keyorder.gate"] == "key"
    settings = ConsumerSettings(
        group=str(group),
        ordered=value["enable.ordered.delivery"],
        auto_commit=boolean(theirs, "enable.auto.commit", True),
        auto_commit_interval=_commit_interval(theirs),
        auto_store=boolean(theirs, "enable.auto.offset.store", True),
        start_at_latest=known_or_error[reset],
        partition_eof=boolean(theirs, "enable.partition.eof", False),
        control_timeout=value["keyorder.control.timeout.ms"],
        hold_limit=value["keyorder.hold.max.messages"],
        strays=strays,
        dead_letter_topic=dead_letter_topic,
        on_commit=on_commit,
        gate_keys=gate_keys,
        early_release=_early_release(value, gate_keys),
        early_release_keys=value["keyorder.gate.early.release.max.keys"],
        arrow_native=value["keyorder.arrow.native"],
        incremental=not classic or "cooperative" in strategy,
        classic=classic,
        cooperative=classic and "cooperative" in strategy,
        growth_interval=_growth_interval(theirs),
        static=classic and bool(theirs.get("group.instance.id")),
        silence=_silence(theirs),
        propagation=_propagation(theirs),
        metrics_at=_metrics_at(ours, value),
    )
    theirs["enable.auto.commit"] = False
    theirs["enable.auto.offset.store"] = False
    theirs["enable.partition.eof"] = True
    # A position that the log no longer holds is settled by us, always towards the log start: `latest` would skip records.
    theirs["auto.offset.reset"] = "error"
    # The second line for new partitions; the first is a look at the cluster when the timeline changes. A member of a classic
    # group may not see them while it rebalances (`connector.consuming.growth_watch`).
    theirs.setdefault(_REFRESH, 10_000)
    if settings.classic:
        theirs[_REFRESH] = -1
    return settings, {**REFILL, **theirs}


def _growth_interval(theirs: Mapping[str, Any]) -> float | None:
    interval = whole(theirs, _REFRESH, 10_000, "a number of milliseconds")
    return interval / 1000 if interval > 0 else None


def _silence(theirs: Mapping[str, Any]) -> float:
    """With KIP-848 the group's own settings hold, which brokers keep at 45 s and 5 s unless they are told otherwise."""
    session = whole(theirs, "session.timeout.ms", 45_000, "a number of milliseconds")
    heartbeat = whole(theirs, "heartbeat.interval.ms", 3_000, "a number of milliseconds")
    return longest_silence(session / 1000, heartbeat / 1000)


def _early_release(value: Mapping[str, Any], gate_keys: bool) -> bool:
    wanted: bool = value["keyorder.gate.early.release"]
    if wanted and not gate_keys:
        raise ConfigError(
            "keyorder.gate.early.release",
            "a partition is held as a whole with keyorder.gate=partition, so no key of it can go before the others",
            "set keyorder.gate=key, or leave it out",
        )
    return wanted


def _strays(value: Mapping[str, Any]) -> tuple[str, str]:
    policy, topic = value["keyorder.strays"], value["keyorder.strays.dead.letter.topic"] or ""
    if policy == "dead-letter" and not topic:
        raise ConfigError(
            "keyorder.strays.dead.letter.topic", "keyorder.strays=dead-letter needs it", "name an existing topic"
        )
    if policy != "dead-letter" and topic:
        raise ConfigError(
            "keyorder.strays.dead.letter.topic",
            f"keyorder.strays={policy} has no use for it",
            "set dead-letter, or leave it out",
        )
    return policy, topic
