"""Checkpoints and progress with anything in them: the offsets of this source, or one typed error."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from keyorder.streaming.errors import CheckpointError
from keyorder.streaming.progress import Waiting, waiting_of
from keyorder.streaming.source.offsets import GATES_KEY, from_dict, start_of, to_dict, with_start
from support.mutations import DEEP, JSON, mutated, texts

pytestmark = pytest.mark.slow  # hundreds of examples for each reader

SAVED = with_start({"t": {"0": 5, "1": 2**63 - 1}, "u": {"12": 0}}, {("t", 0): 1})
REPORTED = {**SAVED, GATES_KEY: {"t": {"1": "origin 0"}}}
LARGEST = 2**63 - 1


@given(mutated(SAVED, REPORTED) | JSON)
@example({"t": {"0": float("inf")}})
@example({"t": {"0": -1}})
@example({"t": {"0": True}})
@example({"t": {"²": 1}})
@example({"t": {"0": "9" * 5000}})
@example({"t": {str(2**31): 1}})
@example([1])
@example(None)
def test_a_checkpoint(document: Any) -> None:
    """As Spark gives it to the source, which is what its JSON means: places and offsets that a broker can have."""
    saved = json.loads(json.dumps(document))
    for read in (from_dict, start_of):
        try:
            found = read(saved)
        except CheckpointError:
            pass
        else:
            assert all(t in saved and 0 <= p < 2**31 and 0 <= o <= LARGEST for (t, p), o in found.items())
            assert from_dict(to_dict(found)) == found


@given(texts(mutated(REPORTED) | JSON), texts(mutated(SAVED) | JSON))
@example(json.dumps({"t": {"0": 5}, GATES_KEY: 5}), json.dumps(SAVED))
@example(json.dumps({"t": {"0": 5}, GATES_KEY: {"t": 5}}), json.dumps(SAVED))
@example(json.dumps({"t": {"0": 5}, GATES_KEY: {"t": {"x": "why"}}}), json.dumps(SAVED))
@example('{"t":{"0":Infinity}}', json.dumps(SAVED))
@example(DEEP, DEEP)
def test_a_query_s_progress(latest: str, end: str) -> None:
    """A listener sees the sources of every query: those of other shapes are left out, and it raises nothing."""
    progress = SimpleNamespace(sources=[SimpleNamespace(latestOffset=latest, endOffset=end)])
    for waiting in waiting_of(cast(Any, progress)):
        assert waiting.lag >= 0
        assert all(isinstance(why, str) for why in waiting.gates.values())


def test_what_is_ours_is_read() -> None:
    """The tests above would hold of a reader that refuses everything."""
    assert from_dict(SAVED) == {("t", 0): 5, ("t", 1): 2**63 - 1, ("u", 12): 0}
    assert start_of(SAVED) == {("t", 0): 1}
    source = SimpleNamespace(latestOffset=json.dumps(REPORTED), endOffset='{"t":{"0":3,"1":0}}')
    assert waiting_of(cast(Any, SimpleNamespace(sources=[source]))) == [
        Waiting({("t", 0): 2, ("t", 1): LARGEST, ("u", 12): 0}, {("t", 1): "origin 0"})
    ]


@pytest.mark.parametrize("offset", [-1, -2])
def test_an_end_that_is_to_be_looked_up_is_no_place(offset: int) -> None:
    """A restart would find another one, and skip what lies between."""
    with pytest.raises(CheckpointError, match="none that a broker can have"):
        from_dict({"t": {"0": offset}})
