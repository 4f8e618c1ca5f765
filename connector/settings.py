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

    def read(self, config: Mapping[str, Any], default: Any = None) -> Any:
        """Its value. default: another one than its own. Raises ConfigError."""
        return self.parse(config, self.name, self.default if default is None else default)

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
        "Names this process among the writers of a topic. Two processes with one id exclude each other: the "
        "newer one wins, the older one stops with `INELIGIBLE_WRITER`.",
        shown="of `client.id`, host, process and a random number",
    ),
    Setting(
        "keyorder.adopt",
        boolean,
        True,
        "A topic without a timeline is brought under management on first use, under the hash that its records "
        "show; one that no hash explains is refused (`MisplacedKeysError`). With `false` the first "
        "`produce()` raises `UnmanagedTopicError`.",
    ),
    Setting(
        "keyorder.allow.explicit.partition",
        boolean,
        False,
        "Let `produce(partition=...)` pass. Such records are outside every key's order.",
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
        "`produce_arrow()` hands rows over by the C library's own calls. `false`, or where they cannot be "
        "had: one by one, with the same results.",
    ),
    Setting(
        "keyorder.lease.ms",
        milliseconds,
        45_000,
        "How long this writer may be silent before a change can exclude it: so long after its crash a change "
        "may have to wait. Where that is longer, `delivery.timeout.ms` + `keyorder.lease.renew.interval.ms` + "
        "`keyorder.lease.margin.ms` + 10 s.",
    ),
    Setting(
        "keyorder.lease.renew.interval.ms",
        milliseconds,
        10_000,
        "How often it says that it lives.",
    ),
    Setting(
        "keyorder.lease.margin.ms",
        milliseconds,
        2_000,
        "Kept free at the end of a lease; covers the difference between a timer and the moment it runs.",
    ),
    *_METRICS,
)

CONSUMER = _table(
    Setting(
        "enable.ordered.delivery",
        boolean,
        True,
        "Gates on or off for this client. Off never changes where keys are written.",
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
        "`consume_arrow()` fetches by the C library's own calls into Arrow buffers. `false` (for both "
        "options: or the environment variable `KEYORDER_ARROW_NATIVE=false`), an unknown version of the "
        "client library, or numba missing: record by record through the Python client, with the same results.",
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
        "what waits at a closed gate. `partition`: all records from the gate on. `key`: only those of keys "
        "that moved, in memory, at most `keyorder.hold.max.messages` of a partition; when that is full the "
        "whole partition waits. Some records are then returned behind later offsets of their partition, and "
        "the commit stays at the oldest that waits; what was processed beyond it stands in the commit's "
        "metadata, so that the next owner returns no record twice. Not for offsets that go through "
        "transactions",
    ),
    Setting(
        "keyorder.gate.early.release",
        boolean,
        False,
        "Only with `keyorder.gate=key`. Behind a gate that has been closed for 0.2 s, keys that have no "
        "unread record in the origin flow at once, and the others as soon as the group has committed their "
        "last one: a thread reads the origin's unread part beside the group "
        "([protocol.md](protocol.md#early-release)), which costs that much network and processor time once "
        "for each member with such a gate. Needs the right DescribeConfigs on the topic; not for compacted "
        "topics, nor beside a listener with callbacks for keys (`UsageError` from `subscribe()`). "
        "`Gate.early_release` says how far it is.",
    ),
    Setting(
        "keyorder.gate.early.release.max.keys",
        positive,
        100_000,
        "The most keys of a topic's unread parts kept in memory for that, about 100 bytes each. With more of "
        "them the gate's keys wait as without it, and `Gate.early_release` says `given up`.",
    ),
    Setting(
        "keyorder.strays",
        word("deliver", "fail", "dead-letter"),
        "deliver",
        "What happens with a *misplaced record* (stray), one that a late or foreign writer put where its key "
        "did not live then: `deliver` it where it is found, `fail` with `StrayError` until the application "
        "seeks past it, or `dead-letter` it. In every case it is counted (`consumer.strays`) and logged "
        "(`keyorder.strays`).",
    ),
    Setting(
        "keyorder.strays.dead.letter.topic",
        text,
        None,
        "The topic that takes them under `dead-letter`; it has to exist and must not be one that is read "
        "here. Headers `keyorder-stray-topic`, `-partition`, `-offset`, `-timestamp`, `-group`, `-home` and "
        "`-epoch` are added; a dead letter is acknowledged before a position passes it, and may come twice "
        "after a crash.",
    ),
    *_METRICS,
)
