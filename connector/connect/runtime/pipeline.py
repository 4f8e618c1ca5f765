"""A connector's converters and transforms, built from its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ....partitioner.errors import ConfigError
from ..converters.base import Converter
from ..converters.headers import ByConverter, HeaderConverter, SimpleHeaderConverter
from ..transforms.base import Predicate, R, Transformation
from .plugins import SIMPLE_HEADERS, Plugins, is_simple
from .settings import below


class Chain:
    """The transforms of one task, in order. Raises ConfigError, NotFoundError when it is built."""

    def __init__(self, plugins: Plugins, config: Mapping[str, str]) -> None:
        self._steps: list[tuple[Transformation, Predicate | None, bool, str]] = []
        self._executing = "transforms"
        predicates: dict[str, Predicate] = {}
        for alias in words(config.get("predicates", "")):
            own = below(config, f"predicates.{alias}.")
            predicate = plugins.predicate(_type(own, f"predicates.{alias}.type"))()
            with _of(f"predicates.{alias}."):
                predicate.configure(own)
            predicates[alias] = predicate
        for alias in words(config.get("transforms", "")):
            own = below(config, f"transforms.{alias}.")
            transform = plugins.transform(_type(own, f"transforms.{alias}.type"))()
            with _of(f"transforms.{alias}."):
                transform.configure(own)
            wanted = own.get("predicate")
            if wanted is not None and wanted not in predicates:
                raise ConfigError(f"transforms.{alias}.predicate", repr(wanted), "name one of the predicates")
            negate = own.get("negate", "false").lower() == "true"
            self._steps.append((transform, predicates[wanted] if wanted else None, negate, own["type"].strip()))

    def apply(self, record: R) -> R | None:
        """The record as it leaves the chain; None if it was dropped. Raises DataError."""
        current: R | None = record
        for transform, predicate, negate, name in self._steps:
            if current is None:
                return None
            self._executing = name
            if predicate is None or predicate.test(current) != negate:
                current = transform.apply(current)
        return current

    def executing(self) -> str:
        """The transform that was applied last, by the name that the settings give its class."""
        return self._executing

    def close(self) -> None:
        """End every transform."""
        for transform, _, _, _ in self._steps:
            transform.close()


class Converters:
    """Key, value and header converter of one task. A connector that names none takes the worker's, settings included."""

    def __init__(self, plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str]) -> None:
        self.key: Converter = self.one(plugins, worker, config, "key")
        self.value: Converter = self.one(plugins, worker, config, "value")
        self.header: HeaderConverter = self.one(plugins, worker, config, "header")

    @staticmethod
    def one(plugins: Plugins, worker: Mapping[str, str], config: Mapping[str, str], half: str) -> Any:
        """The converter of one half: key, value or header."""
        name = f"{half}.converter"
        source = config if config.get(name) else worker
        given = source.get(name) or (SIMPLE_HEADERS if half == "header" else "JsonConverter")
        if half == "header" and is_simple(given):
            return SimpleHeaderConverter()
        made = plugins.converter(given)()
        with _of(f"{name}."):
            made.configure(below(source, f"{name}."), half == "key")
        return ByConverter(made) if half == "header" else made


@contextmanager
def _of(prefix: str) -> Iterator[None]:
    """Errors of settings below a prefix name them in full."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error.setting}", error.problem, error.fix) from error


def words(text: str) -> list[str]:
    """The aliases of a list; an empty one stays, to be refused by what it lacks."""
    return [word.strip() for word in text.split(",")] if text.strip() else []


def _type(own: Mapping[str, str], name: str) -> str:
    if not own.get("type", "").strip():
        raise ConfigError(name, "it is missing", "name the class")
    return own["type"].strip()
