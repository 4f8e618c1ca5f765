"""The built-in predicates: HasHeaderKey, RecordIsTombstone, TopicNameMatches."""

from __future__ import annotations

from collections.abc import Mapping

from ....partitioner.errors import ConfigError
from ..api.java_regex import compiled
from ..api.records import ConnectRecord
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import NonEmptyString
from .base import Predicate


class HasHeaderKey(Predicate):
    """The record has a header of that name."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "name", Type.STRING, importance=Importance.MEDIUM, documentation="The header.", validator=NonEmptyString()
        )

    def test(self, record: ConnectRecord) -> bool:
        return record.headers.last(self.options["name"]) is not None


class RecordIsTombstone(Predicate):
    """The record's value is null."""

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class TopicNameMatches(Predicate):
    """All of the topic's name matches."""

    @classmethod
    def config(cls) -> ConfigDef:
        return ConfigDef().define(
            "pattern",
            Type.STRING,
            importance=Importance.MEDIUM,
            documentation="A regular expression.",
            validator=NonEmptyString(),
        )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        try:
            self._pattern = compiled(self.options["pattern"])
        except ValueError as error:
            raise ConfigError(
                "pattern", f"{self.options['pattern']!r}: {error}", "write a regular expression"
            ) from None

    def test(self, record: ConnectRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None
