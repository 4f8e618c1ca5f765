"""What a program finds that says `import keyorder` and nothing more."""

from __future__ import annotations

import inspect
import subprocess
import sys
from contextlib import suppress
from typing import Any, get_args, get_type_hints

import keyorder
import pytest

FOUND = """
import keyorder
assert issubclass(keyorder.errors.ConfigError, ValueError)
assert keyorder.aio.AIOProducer and keyorder.OrderedProducer
assert {"aio", "errors", "results", "OrderedConsumer"} <= set(dir(keyorder))
"""


def test_public_modules_are_found_without_an_import_of_their_own() -> None:
    """In a process that has loaded nothing of them: as `confluent_kafka.error` is."""
    subprocess.run([sys.executable, "-c", FOUND], check=True)


def test_every_error_is_found_beside_the_clients_too() -> None:
    """`from keyorder import KeyBlockedError`, as `from confluent_kafka import KafkaException`."""
    assert keyorder.errors.__all__
    for name in filter(lambda name: name.endswith("Error"), keyorder.errors.__all__):
        assert getattr(keyorder, name) is getattr(keyorder.errors, name)


# What only this package hands over.
OWN = {"Drainer", "Receipt"}


def of_ours(hint: Any) -> set[type]:
    """The classes of keyorder in a type; errors have a module of their own."""
    inside = {kind for argument in get_args(hint) for kind in of_ours(argument)}
    ours = inspect.isclass(hint) and hint.__module__.startswith("keyorder.") and not issubclass(hint, Exception)
    return inside | {hint} if ours else inside


def test_what_calls_take_and_give_can_be_imported() -> None:
    """A program that is type-checked, or has to make such an object, needs no private module."""
    public = {getattr(keyorder, name) for name in keyorder.__all__}
    public |= {getattr(keyorder.results, name) for name in keyorder.results.__all__}
    clients = (keyorder.TopicAdmin, keyorder.GroupAdmin, keyorder.OrderedProducer, keyorder.OrderedConsumer)
    values = (keyorder.Change, keyorder.ChangePlan, keyorder.Gate, keyorder.Layout, keyorder.TopicDescription)
    signatures = [member for client in clients for name, member in inspect.getmembers(client) if name[0] != "_"]
    named: set[type] = set()
    for holder in (*values, *signatures):
        with suppress(NameError, TypeError):  # a name that only type checkers import; a method of the client library
            for hint in get_type_hints(holder.fget if isinstance(holder, property) else holder).values():
                named |= of_ours(hint)
    assert {kind.__name__ for kind in named - public} == OWN
    assert {"Point"} == {name for name in keyorder.results.__all__ if getattr(keyorder.results, name) not in named}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module."""
    with pytest.raises(AttributeError, match="'keyorder' has no attribute 'nothing'"):
        keyorder.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="'keyorder' has no attribute 'NothingError'"):
        keyorder.NothingError  # noqa: B018
