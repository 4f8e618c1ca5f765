"""Version compaction (KIP-280) on a stock cluster."""

from __future__ import annotations

from typing import Any

__all__ = ["CompactedView", "Strategy", "StrategyKind", "TopicCompactor", "compact", "encode_version", "set_strategy"]

_HOMES = {
    "CompactedView": "view",
    "Strategy": "strategy",
    "StrategyKind": "strategy",
    "TopicCompactor": "compactor",
    "compact": "spark",
    "encode_version": "strategy",
    "set_strategy": "migration",
}


def __getattr__(name: str) -> Any:
    """Imported on first use: what asks for one part does not wait for the libraries of all."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
