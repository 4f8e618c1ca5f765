"""A topic's settings: those that the control topic keeps, and those that Kafka keeps."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ...partitioner.errors import ConfigError
from ...partitioner.timeline import DEFAULT_VIEW_AGE_S, Timeline
from ..compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, blank_header, chosen_strategy
from ..settings import boolean, milliseconds
from ..topology.draining import DEFAULT_DELAY_MS, DELAY, ENABLE
from .adopting import VIEW_AGE

_LOGGER = logging.getLogger("keyorder.admin")

ORDERED = "enable.ordered.delivery"
OUR_TOPIC_SETTINGS = (
    ENABLE,
    DELAY,
    ORDERED,
    VIEW_AGE,
    STRATEGY_CONFIG,
    HEADER_CONFIG,
)


def split_topic_config(config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(what the control topic keeps, what Kafka keeps) of a topic's settings. Raises ConfigError for ours that make no sense."""
    ours = {k: str(v) for k, v in config.items() if k in OUR_TOPIC_SETTINGS}
    theirs = {k: str(v) for k, v in config.items() if k not in OUR_TOPIC_SETTINGS}
    ordered = ours.get(ORDERED, "true").lower()
    if ordered not in ("true", "false"):
        raise ConfigError(ORDERED, f"{ordered!r} is neither true nor false", "write true or false")
    boolean(ours, ENABLE, False)
    milliseconds(ours, DELAY, DEFAULT_DELAY_MS)
    milliseconds(ours, VIEW_AGE, round(DEFAULT_VIEW_AGE_S * 1000))
    chosen_strategy(ours)
    if blank_header(ours):
        _LOGGER.warning("%s=header without %s acts as offset: name the header", STRATEGY_CONFIG, HEADER_CONFIG)
    return ours, theirs


def ordered_by(ours: Mapping[str, str]) -> bool:
    """Whether these settings let readers wait at gates."""
    return ours.get(ORDERED, "true").lower() != "false"


def settings_of_existing(config: Mapping[str, str]) -> dict[str, str]:
    """The settings that an existing topic may be given. Raises ConfigError for all others, with where they belong."""
    ours, theirs = split_topic_config(config)
    for name in (STRATEGY_CONFIG, HEADER_CONFIG):
        if name in ours:
            raise ConfigError(
                name,
                "an existing topic's records have to be looked at before it changes",
                "use `keyorder compact set-strategy`",
            )
    for name in theirs:
        raise ConfigError(name, "this is a setting of Kafka's own", "set it with kafka-configs --alter")
    return ours


def altered(timeline: Timeline, ours: Mapping[str, str]) -> Timeline:
    """The timeline with these settings, as `settings_of_existing` gives them; the others stay. Raises ConfigError."""
    view_age = milliseconds(ours, VIEW_AGE, round(timeline.view_age_s * 1000))
    if view_age < timeline.view_age_s:
        # Readers go by the old one until they have read this; two changes could follow within it.
        raise ConfigError(
            VIEW_AGE,
            f"it can only be raised, from {round(timeline.view_age_s * 1000)}",
            "leave it, or create a topic with a lower one",
        )
    kept = {name: value for name, value in ours.items() if name not in (ORDERED, VIEW_AGE)}
    return replace(
        timeline,
        ordered=ordered_by(ours) if ORDERED in ours else timeline.ordered,
        view_age_s=view_age,
        settings={**timeline.settings, **kept},
    )
