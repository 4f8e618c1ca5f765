"""The mirror's settings, and what they say of the two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...metadata import cluster_metadata
from ...refusals import ClusterAdmin
from ..api.connector import Config
from ..config.configdef import ConfigDef
from ..config.keys import ConfigValue, Importance, Type
from ..config.validators import NonEmptyString, Range, Regex

PLACE_HEADER = "keyorder-mirror-source"
# Settings below `source.` and `target.` that are the connector's own; all others are the clients'.
_OWN = {"source": {"topic", "topics.regex", "group.id"}, "target": {"topic"}}
# With these, records come behind later ones of their partition. What has been copied is known by offsets alone.
_OUT_OF_OFFSETS = {"source.keyorder.gate": "key", "source.keyorder.gate.early.release": "true"}


def definition() -> ConfigDef:
    """The connector's settings."""
    return (
        ConfigDef()
        .define("source.topic", Type.STRING, None, Importance.HIGH, "The topic to copy, or:")
        .define("source.topics.regex", Type.STRING, None, Importance.HIGH, "A regular expression of topics; one that is made later is copied, too.", validator=Regex(subscribed=True))
        .define("target.topic", Type.STRING, importance=Importance.HIGH, documentation="The topic to write; ${topic} stands for the name of the source's.", validator=NonEmptyString())
        .define("source.bootstrap.servers", Type.STRING, importance=Importance.HIGH, documentation="The cluster of the source; other source.* settings go to its clients.")
        .define("target.bootstrap.servers", Type.STRING, None, Importance.HIGH, "The worker's own cluster, which the connector asks for source.topics.regex, groups.regex, and where a topic keeps its name. Other target.* settings go to its clients.")
        .define("source.group.id", Type.STRING, None, Importance.MEDIUM, "The group that reads it; by default connect-mirror-<name>.")
        .define("groups.regex", Type.STRING, None, Importance.MEDIUM, "Groups of the source whose offsets are translated and put into the target, while they have no members there. Needs tasks.max=1.", validator=Regex())
        .define("groups.name", Type.STRING, "${group}", Importance.LOW, "Their names in the target; ${group} stands for the name in the source.", validator=NonEmptyString())
        .define("groups.interval.ms", Type.INT, 10_000, Importance.LOW, "Between two translations.", validator=Range(1))
        .define("batch.size", Type.INT, 1000, Importance.LOW, "Records per poll.", validator=Range(1))
        .define("include.source.place", Type.BOOLEAN, True, Importance.LOW, f"Add the header {PLACE_HEADER}: topic/partition/offset.")
    )  # fmt: skip


def judged(config: Mapping[str, str]) -> list[ConfigValue]:
    """Each setting with its errors, those that show only beside others included."""
    found = definition().validate(config)
    by_name = {value.name: value for value in found}

    def given(name: str) -> Any:
        return by_name[name].value

    if bool(given("source.topic")) == bool(given("source.topics.regex")):
        by_name["source.topic"].errors.append("Give source.topic or source.topics.regex, one of the two.")
    if given("source.topics.regex") and "${topic}" not in (given("target.topic") or "${topic}"):
        by_name["target.topic"].errors.append(
            "Many topics would be copied into one, where keys of two of them could not be told apart: write ${topic} into it."
        )
    if given("groups.regex") and "${group}" not in (given("groups.name") or "${group}"):
        by_name["groups.name"].errors.append("Many groups would share one name: write ${group} into it.")
    same = (given("target.topic") or "").replace("${topic}", given("source.topic") or "") == given("source.topic")
    if (given("source.topics.regex") or given("groups.regex") or same) and not given("target.bootstrap.servers"):
        by_name["target.bootstrap.servers"].errors.append(
            "It is needed for source.topics.regex, for groups.regex, and where a topic keeps its name: name the worker's own cluster."
        )
    if given("groups.regex") and str(config.get("tasks.max", "1")).strip() != "1":
        by_name["groups.regex"].errors.append(
            "One task has to know all partitions: set tasks.max=1, and make several connectors to share the work."
        )
    for name, wrong in _OUT_OF_OFFSETS.items():
        if str(config.get(name, "")).strip().lower() == wrong:
            text = f"{name}={wrong} gives out records behind later ones of their partition, which a mirror would leave out: omit it."
            found.append(ConfigValue(name, config[name], errors=[text]))
    return found


def client(config: Config, side: str) -> dict[str, str]:
    """The settings of the clients of one side."""
    found = {name.removeprefix(f"{side}."): value for name, value in config.items() if name.startswith(f"{side}.")}
    return {name: value for name, value in found.items() if name not in _OWN[side]}


def cluster(config: Mapping[str, str]) -> str:
    """The cluster's id. Raises BrokerUnreachableError and its like."""
    servers = config["bootstrap.servers"]
    return str(cluster_metadata(ClusterAdmin(config), servers).cluster_id)
