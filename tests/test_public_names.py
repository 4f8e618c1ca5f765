"""What a program finds that says `import keyorder` and nothing more."""

from __future__ import annotations

import subprocess
import sys

import keyorder
import pytest

FOUND = """
import keyorder
assert issubclass(keyorder.errors.ConfigError, ValueError)
assert keyorder.aio.AIOProducer and keyorder.OrderedProducer
assert {"aio", "errors", "OrderedConsumer"} <= set(dir(keyorder))
"""


def test_public_modules_are_found_without_an_import_of_their_own() -> None:
    """In a process that has loaded nothing of them: as `confluent_kafka.error` is."""
    subprocess.run([sys.executable, "-c", FOUND], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="'keyorder' has no attribute 'nothing'"):
        keyorder.nothing  # noqa: B018
