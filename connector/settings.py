"""The settings that our clients add to the client library's, each once: how it is read, its default, what it means.

`OrderedProducer` and `OrderedConsumer` refuse what does not stand in their table; docs/configuration.md shows the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..partitioner.errors import ConfigError

_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
#: How a value is read: (settings, name, default) -> value. Raises ConfigError.
Parse = Callable[[Mapping[str, Any], str, Any], Any]


def boolean(config: Mapping[str, Any], name: str, default: bool) -> bool:
    """A boolean setting, spelled as librdkafka spells them."""
    value = config.get(name, default)
    text = str(value).lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ConfigError(name, f"{value!r} is neither true nor false", "write true or false")


def whole(config: Mapping[str, Any], name: str, default: int, what: str = "a whole number") -> int:
    """A number, of whatever sign: its bounds are the client library's. what: the number it has to be, for the error."""
    value = config.get(name, default)
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(value)
    except (TypeError, ValueError):
        raise ConfigError(name, f"{value!r} is not {what}", _hint(default)) from None


def positive(config: Mapping[str, Any], name: str, default: int, what: str = "a positive number") -> int:
    """A whole number above 0."""
    number = whole(config, name, default, what)
    if number <= 0:
        raise ConfigError(name, f"{config[name]!r} is not {what}", _hint(default))
    return number


def milliseconds(config: Mapping[str, Any], name: str, default: int) -> float:
    """A duration in milliseconds, returned in seconds."""
    return positive(config, name, default, "a positive number of milliseconds") / 1000


def port(config: Mapping[str, Any], name: str, default: int | None) -> int | None:
    """A TCP port; None where it is not given."""
    if name not in config:
        return default
    number = positive(config, name, 0)
    if number > 65_535:
        raise ConfigError(name, f"{number} is no port", "give one from 1 to 65535")
    return number


def text(config: Mapping[str, Any], name: str, default: str | None) -> str | None:
    """A text; None or "" is none."""
    value = config.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(name, f"{value!r} is not a text", "put it in quotes")
    return value or default


def word(*choices: str) -> Parse:
    """One of these words."""

    def parse(config: Mapping[str, Any], name: str, default: str) -> str:
        value = str(config.get(name, default)).lower()
        if value not in choices:
            raise ConfigError(name, f"{config[name]!r} is none of {', '.join(choices)}", _hint(default))
        return value

    return parse


def _hint(default: object) -> str:
    return f"the default is {default}" if default else "give a whole number above 0"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. default: as it would be given; None for none. meaning: Markdown. shown: the default in words."""

    name: str
    parse: Parse
    default: Any
    meaning: str
    shown: str = ""

    def read(self, config: Mapping[str, Any]) -> Any:
        """Its value. Raises ConfigError."""
        return self.parse(config, self.name, self.default)

    @property
    def default_shown(self) -> str:
        """The default, in Markdown."""
        if self.shown or self.default is None:
            return self.shown or "none"
        return f"`{str(self.default).lower() if isinstance(self.default, bool) else self.default}`"


Table = Mapping[str, Setting]


def _table(*settings: Setting) -> Table:
    return {setting.name: setting for setting in settings}


def values(table: Table, config: Mapping[str, Any]) -> dict[str, Any]:
    """{name: value} of every setting of a table. Raises ConfigError."""
    return {name: setting.read(config) for name, setting in table.items()}


def markdown(settings: Iterable[Setting]) -> str:
    """The rows of a table of settings for people."""
    rows = (f"| `{each.name}` | {each.default_shown} | {each.meaning} |" for each in settings)
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


_METRICS = (
    Setting(
        "keyorder.metrics.port",
        port,
        None,
        "Serve this process's [metrics](metrics.md#producers-and-consumers) there; clients with the same port "
        "share it. Needs `keyorder[metrics]`. Also of an `OrderedConsumer`.",
    ),
    Setting(
        "keyorder.metrics.host",
        text,
        "127.0.0.1",
        "The address to serve them on. There is no login: open it to your monitoring alone.",
    ),
)

PRODUCER = _table(
    Setting(
        "keyorder.writer.id",
        text,
        None,
        "The name of this process among the writers of a topic. Two processes must not share it: the newer one "
        "goes on, the older one stops with `INELIGIBLE_WRITER`.",
        shown="made of `client.id`, host, process id and a random number",
    ),
    Setting(
        "keyorder.adopt",
        boolean,
        True,
        "Adopt a topic without a timeline on first use, with the hash by which its records were placed. A topic "
        "whose records fit no hash is refused (`MisplacedKeysError`). With `false` the first `produce()` to an "
        "unmanaged topic raises `UnmanagedTopicError`.",
    ),
    Setting(
        "keyorder.allow.explicit.partition",
        boolean,
        False,
        "Allow `produce(partition=...)` to a managed topic. The order of a key does not include such records.",
    ),
    Setting(
        "keyorder.control.timeout.ms",
        milliseconds,
        30_000,
        "How long the first `produce()` to a topic may wait for the control topics.",
    ),
    Setting(
        "keyorder.arrow.native",
        boolean,
        True,
        "`produce_arrow()` passes rows to the C library directly. With `false`, or where that is not possible, "
        "it sends them one by one through the Python client, with the same results.",
    ),
    Setting(
        "keyorder.lease.ms",
        milliseconds,
        45_000,
        "The length of this writer's lease. A change expels a silent writer only when its lease is over, so after "
        "a crash a change may have to wait this long. The default grows with the other settings: it is at least "
        "`delivery.timeout.ms` + `keyorder.lease.renew.interval.ms` + `keyorder.lease.margin.ms` + 10 s.",
    ),
    Setting(
        "keyorder.lease.renew.interval.ms",
        milliseconds,
        10_000,
        "How often the writer renews its lease.",
    ),
    Setting(
        "keyorder.lease.margin.ms",
        milliseconds,
        2_000,
        "The writer stops sending this long before the lease would require it, in case a timer runs late.",
    ),
    *_METRICS,
)

CONSUMER = _table(
    Setting(
        "enable.ordered.delivery",
        boolean,
        True,
        "Whether this consumer waits at gates. The setting does not change where keys are written.",
    ),
    Setting(
        "keyorder.control.timeout.ms",
        milliseconds,
        30_000,
        "How long the control topic may be unreadable before `poll()` raises `StaleViewError`. Until then "
        "records wait.",
    ),
    Setting(
        "keyorder.arrow.native",
        boolean,
        True,
        "`consume_arrow()` fetches through the C library directly into Arrow buffers. With `false`, with an unknown "
        "version of the client library or without numba it reads record by record through the Python client, with "
        "the same results. The environment variable `KEYORDER_ARROW_NATIVE=false` switches both options off.",
    ),
    Setting(
        "keyorder.hold.max.messages",
        positive,
        10_000,
        "Records of one partition held in memory behind a closed gate before the partition is paused.",
    ),
    Setting(
        "keyorder.gate",
        word("partition", "key"),
        "partition",
        "What waits at a closed gate. `partition`: all records from the gate on. `key`: only records of keys "
        "that moved. They are held in memory, at most `keyorder.hold.max.messages` per partition; when that is "
        "full, the whole partition waits. With `key` some records are returned after later offsets of their "
        "partition. The committed offset stays at the oldest record that waits, and the commit's metadata lists "
        "what was processed beyond it, so that the next owner returns no record twice. An offset that the "
        "application stores or commits covers the lower ones that it was given before that record: name every record, "
        "in the order in which they came, not the highest offset of a batch. `key` cannot be used with "
        "`send_offsets_to_transaction()`.",
    ),
    Setting(
        "keyorder.gate.early.release",
        boolean,
        False,
        "Only with `keyorder.gate=key`. When a gate has been closed for 0.2 s, keys without an unread record in "
        "the origin are released at once, and each other key when the group has committed its last record there. "
        "To know these keys, each member with such a gate reads the unread part of the origin once, in a thread "
        "of its own ([protocol.md](protocol.md#early-release)). Needs DescribeConfigs on the topic. Not for "
        "compacted topics, and not with a listener that has callbacks for keys (`UsageError` from `subscribe()`). "
        "`Gate.early_release` shows the progress.",
    ),
    Setting(
        "keyorder.gate.early.release.max.keys",
        positive,
        100_000,
        "The most keys per topic that early release keeps in memory, about 100 bytes each. With more keys the "
        "gate's records wait as they do without early release, and `Gate.early_release` shows `given up`.",
    ),
    Setting(
        "keyorder.strays",
        word("deliver", "fail", "dead-letter"),
        "deliver",
        "What happens to a *misplaced record* (stray): one that lies in a partition to which its key did not "
        "belong, because a late writer or another kind of producer wrote it. `deliver` returns it where it is "
        "found, `fail` raises `StrayError` until the application seeks past it, `dead-letter` writes it to another "
        "topic. It is always counted (`consumer.strays`) and logged (logger `keyorder.strays`).",
    ),
    Setting(
        "keyorder.strays.dead.letter.topic",
        text,
        None,
        "The topic for misplaced records under `dead-letter`. It must exist, and this consumer must not read it. "
        "Each record there has the headers `keyorder-stray-topic`, `-partition`, `-offset`, `-timestamp`, `-group`, "
        "`-home` and `-epoch`. It is acknowledged before the group's offset passes the original, and may be written "
        "twice after a crash.",
    ),
    *_METRICS,
)
