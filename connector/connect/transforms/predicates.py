"""The built-in predicates: HasHeaderKey, RecordIsTombstone, TopicNameMatches."""

from __future__ import annotations

import re

from ..api.records import ConnectRecord
from ..config.configdef import ConfigDef
from ..config.keys import Importance, Type
from ..config.validators import Composite, NonEmptyString, Regex
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
            validator=Composite(NonEmptyString(), Regex()),
        )

    def test(self, record: ConnectRecord) -> bool:
        return re.fullmatch(self.options["pattern"], record.topic) is not None
