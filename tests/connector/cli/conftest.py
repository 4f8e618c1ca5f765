"""The command, for tests that look at what it says and does."""

from __future__ import annotations

import io
import sys

import pytest
from support.cluster import KafkaUnderTest
from support.commands import Command


@pytest.fixture
def keyorder(kafka: KafkaUnderTest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, with nobody at the keyboard."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return Command(kafka, capsys)
