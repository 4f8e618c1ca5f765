"""Our classes take what confluent_kafka's take: every public method, every parameter, in the same order."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import aio
from keyorder import OrderedConsumer, OrderedProducer
from keyorder.aio import AIOConsumer, AIOProducer

STUBS = Path(confluent_kafka.__file__).parent / "cimpl.pyi"


def stubbed(name: str) -> dict[str, list[tuple[str, Any]]]:
    """{method: [(parameter, default)]} of a class of the compiled library, as its stubs say; overloads are united."""
    (found,) = (
        node for node in ast.parse(STUBS.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name
    )
    methods: dict[str, list[tuple[str, Any]]] = {}
    for method in found.body:
        if isinstance(method, ast.FunctionDef) and (not method.name.startswith("_") or method.name == "__len__"):
            arguments = method.args.args[1:]
            defaults = [None] * (len(arguments) - len(method.args.defaults)) + list(method.args.defaults)
            known = methods.setdefault(method.name, [])
            for argument, default in zip(arguments, defaults, strict=True):
                if argument.arg not in [name for name, _ in known]:
                    value = inspect.Parameter.empty if default is None else _literal(default)
                    known.append((argument.arg, value))
    return methods


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ...


PAIRS = [("Producer", OrderedProducer), ("Consumer", OrderedConsumer)]


@pytest.mark.parametrize(("name", "ours"), PAIRS)
def test_every_public_method_is_there(name: str, ours: type) -> None:
    """By what the compiled class has, whatever its stubs say."""
    theirs = getattr(confluent_kafka, name)
    dunder = ("__enter__", "__exit__", *(("__len__", "__bool__") if name == "Producer" else ()))
    missing = [m for m in [*dir(theirs), *dunder] if (m in dunder or not m.startswith("_")) and not hasattr(ours, m)]

    assert missing == []


@pytest.mark.parametrize(("name", "ours"), PAIRS)
def test_parameters_have_the_same_names_places_and_defaults(name: str, ours: type) -> None:
    """Whatever is passed by position or by name goes through; ours may take more behind them."""
    for method, wanted in stubbed(name).items():
        parameters = list(inspect.signature(getattr(ours, method)).parameters.values())[1:]
        given = {p.name: p.default for p in parameters}
        names = [p for p, _ in wanted]
        if method != "commit":  # its overloads list them in another order each; docs: message, offsets, asynchronous
            assert list(given)[: len(names)] == names, method
        for parameter, default in wanted:
            assert parameter in given, (method, parameter)
            if default is not inspect.Parameter.empty and default is not ...:
                assert given[parameter] == default, (method, parameter)
    assert list(inspect.signature(OrderedConsumer.commit).parameters)[1:] == [
        "message",
        "offsets",
        "asynchronous",
        "named",
    ]


@pytest.mark.parametrize(("theirs", "ours"), [(aio.AIOProducer, AIOProducer), (aio.AIOConsumer, AIOConsumer)])
def test_the_asyncio_classes_have_the_same_face(theirs: type, ours: type) -> None:
    """Constructor parameters by name, every method, and a coroutine where theirs is one."""
    taken = list(inspect.signature(ours).parameters)
    assert taken[: len(inspect.signature(theirs).parameters)] == list(inspect.signature(theirs).parameters)
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if not name.startswith("_") or name in ("__aenter__", "__aexit__", "__len__"):
            assert inspect.iscoroutinefunction(getattr(ours, name)) == inspect.iscoroutinefunction(method), name
