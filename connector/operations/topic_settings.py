"""A topic's settings: those that the control topic keeps, and those that Kafka keeps."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ...partitioner.errors import ConfigError
from ...partitioner.timeline import DEFAULT_VIEW_AGE_S
from ..compaction_settings import HEADER_CONFIG, STRATEGY_CONFIG, blank_header, chosen_strategy
from ..config import boolean, milliseconds
from ..topology.draining import DEFAULT_DELAY_MS, DELAY, ENABLE
from .adopting import VIEW_AGE

_LOGGER = logging.getLogger("keyorder.admin")

OUR_TOPIC_SETTINGS = (
    ENABLE,
    DELAY,
    "enable.ordered.delivery",
    VIEW_AGE,
    STRATEGY_CONFIG,
    HEADER_CONFIG,
)


def split_topic_config(config: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(what the control topic keeps, what Kafka keeps) of a topic's settings. Raises ConfigError for ours that make no sense."""
    ours = {k: str(v) for k, v in config.items() if k in OUR_TOPIC_SETTINGS}
    theirs = {k: str(v) for k, v in config.items() if k not in OUR_TOPIC_SETTINGS}
    ordered = ours.get("enable.ordered.delivery", "true").lower()
    if ordered not in ("true", "false"):
        raise ConfigError("enable.ordered.delivery", f"{ordered!r} is neither true nor false", "write true or false")
    boolean(ours, ENABLE, False)
    milliseconds(ours, DELAY, DEFAULT_DELAY_MS)
    milliseconds(ours, VIEW_AGE, round(DEFAULT_VIEW_AGE_S * 1000))
    chosen_strategy(ours)
    if blank_header(ours):
        _LOGGER.warning("%s=header without %s acts as offset: name the header", STRATEGY_CONFIG, HEADER_CONFIG)
    return ours, theirs
