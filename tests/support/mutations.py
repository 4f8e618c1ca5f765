"""Documents that are nearly right: a valid one with a part taken out, put in, replaced or said twice; and any JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

#: What stands where something else is expected.
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(
        ["²", "٣", "1_0", "-1", "00", "9" * 5000, "\ud800", "\0", [], {}, [None], [[]], {"": None}, 10**400]
    ),
)
JSON: st.SearchStrategy[Any] = st.recursive(
    ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
DEEP = "[" * 100_000


def _places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each part of a document."""
    found = [path] if path else []
    parts = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, part in parts:
        found += _places(part, (*path, name))
    return found


@st.composite
def mutated(draw: st.DrawFn, *valid: Any) -> Any:
    """One of the valid documents, changed in some places."""
    document = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(0, 3))):
        places = _places(document)
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        inside = document
        for name in way:
            inside = inside[name]
        what = draw(st.sampled_from(["out", "odd", "odd", "in", "other"]))
        if what == "out":
            del inside[last]
        elif what == "odd":
            inside[last] = copy.deepcopy(draw(JSON))
        elif what == "other":
            inside[last] = copy.deepcopy(draw(st.sampled_from(valid)))
        elif isinstance(inside, dict):
            inside[draw(st.text(max_size=3) | st.sampled_from(list(inside)))] = copy.deepcopy(draw(JSON))
        else:
            inside.insert(draw(st.integers(0, len(inside))), copy.deepcopy(draw(JSON)))
    return document


def texts(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """JSON, JSON that was cut off, and any text."""
    whole = documents.map(json.dumps)
    cut = st.tuples(whole, st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]])
    return st.one_of(whole, whole, whole, cut, st.text(max_size=20))


def changed(*valid: str) -> st.SearchStrategy[str]:
    """One of the valid texts with other text in some places."""

    @st.composite
    def made(draw: st.DrawFn) -> str:
        text = draw(st.sampled_from(valid))
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(text)))
            until = draw(st.integers(at, min(len(text), at + 20)))
            text = text[:at] + draw(st.text(max_size=6) | st.sampled_from(sorted(set(text)) or [""])) + text[until:]
        return text

    return made()


def bytes_of(some: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Texts as UTF-8, lone surrogates as they are, and any bytes."""
    return some.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=20)


def refused(call: Callable[[], object], error: type[Exception]) -> bool:
    """Whether it raised this typed error; another one goes on."""
    try:
        call()
    except error:
        return True
    return False
