"""The table of errors in docs/api.md, from the classes themselves: `python tests/support/api_errors.py --write`."""

from __future__ import annotations

import sys
from inspect import getdoc, signature
from pathlib import Path

from keyorder import errors
from keyorder.errors import KeyorderError, OrderError, PeerError, UsageError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
BEGIN, END = "<!-- errors: made from the code -->", "<!-- end of errors -->"
_BRANCHES = {UsageError: "2", PeerError: "1", OrderError: "3"}


def raised() -> list[type[KeyorderError]]:
    """The errors that are raised, branch by branch and by name; the root and the branches are not among them."""
    found = [getattr(errors, name) for name in errors.__all__]
    kinds = [kind for kind in found if isinstance(kind, type) and issubclass(kind, KeyorderError)]
    leaves = [kind for kind in kinds if kind is not KeyorderError and kind not in _BRANCHES]
    return sorted(leaves, key=lambda kind: (list(_BRANCHES).index(_branch(kind)), kind.__name__))


def table() -> str:
    """The rows in Markdown, between the two marks."""
    rows = [
        f"| `{kind.__name__}` | `{_branch(kind).__name__}` | {_retriable(kind)} "
        f"| {_BRANCHES[_branch(kind)]} | {_meaning(kind)} |"
        for kind in raised()
    ]
    return "\n".join(
        [BEGIN, "", "| error | branch | retriable | exit code | means |", "|---|---|---|---|---|", *rows, "", END]
    )


def page(text: str) -> str:
    """The page with today's table."""
    before, _, rest = text.partition(BEGIN)
    return before + table() + rest.partition(END)[2]


def _branch(kind: type[KeyorderError]) -> type[KeyorderError]:
    (branch,) = [each for each in _BRANCHES if issubclass(kind, each)]
    return branch


def _retriable(kind: type[KeyorderError]) -> str:
    if kind.__init__ is not Exception.__init__ and "retriable" in signature(kind.__init__).parameters:
        return "as Kafka says"
    return "yes" if kind.retriable else "no"


def _meaning(kind: type[KeyorderError]) -> str:
    """The first paragraph of its docstring, without what it says of its parameters."""
    first = " ".join((getdoc(kind) or "").split("\n\n")[0].split())
    return first.partition(" where: ")[0].replace("|", "\\|")


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(PAGE.read_text()))
    else:
        print(table())
