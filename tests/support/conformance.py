"""The conformance page: what is done of each behaviour of the KIPs, and which tests show it.

    python tests/support/conformance.py            says whether docs/conformance.md is up to date
    python tests/support/conformance.py --write    makes it

What is done stands in docs/conformance.toml, by hand. Which tests show it is read from the `kip` marks of the tests, as
source text: nothing is imported or collected.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "conformance.toml"
PAGE = ROOT / "docs" / "conformance.md"
TESTS = ROOT / "tests"

# How many ids there are of each kind: K253-01 to K253-68 and so on. T-1 to T-13 are worked examples, without a status.
COUNTS = {"K253": 68, "K694": 27, "K903": 17, "K280": 20, "C": 24, "T": 13}
STATUSES = ("exact", "equivalent", "beyond", "impossible", "not yet")
PRIORITIES = ("c", "e", "l", "n")
SHOWN = ("exact", "equivalent", "beyond")
_SECTIONS = {
    "K253": "KIP-253: in-order delivery while partitions come and go",
    "K694": "KIP-694: fewer partitions",
    "K903": "KIP-903: no stale member in the set",
    "K280": "KIP-280: compaction by version",
    "C": "Contradictions and holes in the texts",
}
_MEANINGS = {
    "exact": "the same behaviour, from clients of a stock cluster",
    "equivalent": "another mechanism with the same result for the application",
    "beyond": "more than the KIP asks for, or a gap of the KIP that is closed here",
    "impossible": "needs a changed broker, or concerns the broker's internals only",
    "not yet": "missing, entirely or in its essential part",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One id. says: the behaviour (of a contradiction: what it is). how: what is done, or why it cannot be."""

    id: str
    kips: tuple[int, ...]
    says: str
    priority: str = ""
    status: str = ""
    how: str = ""

    @property
    def kind(self) -> str:
        """Which list it belongs to: K253, K694, K903, K280, C or T."""
        return self.id.partition("-")[0]


def known_ids() -> list[str]:
    """Every id there is, in the order of the page."""
    wide = {kind: 2 if kind != "T" else 1 for kind in COUNTS}
    return [f"{kind}-{number:0{wide[kind]}}" for kind, count in COUNTS.items() for number in range(1, count + 1)]


def entries(text: str | None = None) -> dict[str, Entry]:
    """The entries of the source by id; an id that occurs twice is an error of the format (tomllib.TOMLDecodeError)."""
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8") if text is None else text)
    return {id: Entry(id=id, **{**fields, "kips": tuple(fields["kips"])}) for id, fields in found.items()}


@cache
def marked(root: Path = TESTS) -> Mapping[str, Sequence[str]]:
    """{id: tests that bear it in a `kip` mark}, each as path::name from the repository's root."""
    shown: dict[str, list[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        place, text = path.relative_to(root.parent).as_posix(), path.read_text(encoding="utf-8")
        if "mark.kip(" not in text:
            continue
        for name, ids in _marks(ast.parse(text).body, ()):
            for id in ids:
                shown.setdefault(id, []).append(f"{place}::{name}")
    return shown


def _marks(body: Sequence[ast.stmt], outer: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, ids) of each test function; marks of a class or of the module count for all tests inside."""
    for node in body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            values = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            outer += tuple(id for value in values for id in _ids(value))
    for node in body:
        if isinstance(node, ast.ClassDef):
            own = outer + tuple(id for each in node.decorator_list for id in _ids(each))
            yield from ((f"{node.name}::{name}", ids) for name, ids in _marks(node.body, own))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, outer + tuple(id for each in node.decorator_list for id in _ids(each))


def _ids(node: ast.expr) -> Iterator[str]:
    """The ids of `pytest.mark.kip("...", ...)`; nothing for any other expression."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.kip":
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(f"line {node.lineno}: a kip mark takes plain strings, not {ast.unparse(argument)}")
            yield argument.value


def page(known: Mapping[str, Entry], shown: Mapping[str, Sequence[str]]) -> str:
    """The text of docs/conformance.md."""
    behaviours = [entry for entry in known.values() if entry.kind != "T"]
    lines = [
        "# Conformance",
        "",
        "KIP-253, KIP-694 and KIP-280 are proposals that no stock cluster implements; KIP-903 is implemented for brokers, not",
        "for clients. This page lists each behaviour that they describe, what keyorder does about it, and the tests that show",
        "it. `make docs` makes the page from `docs/conformance.toml` and the `kip` marks of the tests.",
        "`make conformance-removal` removes each behaviour from a copy of the code, at the places in",
        "`docs/conformance_spots.toml`, and requires its tests to fail.",
        "",
        *_summary(behaviours, shown),
        *_missing(behaviours),
    ]
    for kind, title in _SECTIONS.items():
        lines += ["", f"## {title}", "", "| id | behaviour | status | how | tests |", "|---|---|---|---|---|"]
        for entry in behaviours:
            if entry.kind == kind:
                cells = (_id(entry), _cell(entry.says), entry.status, _cell(entry.how), _tests(shown.get(entry.id, ())))
                lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Worked examples",
        "",
        "Figures that the tests take from the texts, or that were counted by hand.",
        "",
    ]
    lines += ["| id | KIP | what | tests |", "|---|---|---|---|"]
    for entry in known.values():
        if entry.kind == "T":
            lines.append(f"| {entry.id} | {_kips(entry)} | {_cell(entry.says)} | {_tests(shown.get(entry.id, ()))} |")
    return "\n".join(lines) + "\n"


def _summary(behaviours: Sequence[Entry], shown: Mapping[str, Sequence[str]]) -> list[str]:
    counts = Counter((entry.kind, entry.status) for entry in behaviours)
    heads = ["KIP-" + kind[1:] if kind != "C" else "contradictions" for kind in _SECTIONS]
    lines = [f"| status | meaning | {' | '.join(heads)} | all |", "|---|---|" + "---|" * (len(heads) + 1)]
    for status in STATUSES:
        row = [counts[kind, status] for kind in _SECTIONS]
        lines.append(f"| {status} | {_MEANINGS[status]} | {' | '.join(map(str, row))} | {sum(row)} |")
    core = [entry for entry in behaviours if entry.priority == "c"]
    done = [entry for entry in core if entry.status in SHOWN]
    return [
        *lines,
        "",
        f"Of {len(core)} core behaviours (their ids are in **bold**) {len(done)} are implemented, each with a test; "
        f"{sum(len(names) for names in shown.values())} marks stand on "
        f"{len({name for names in shown.values() for name in names})} tests.",
    ]


def _missing(behaviours: Sequence[Entry]) -> list[str]:
    lines = ["", "## Not yet", ""]
    missing = [entry for entry in behaviours if entry.status == "not yet"]
    lines += [f"- {_id(entry)} {_cell(entry.says)} *{_cell(entry.how)}*" for entry in missing]
    return lines if missing else [*lines, "Nothing is missing."]


def _id(entry: Entry) -> str:
    return f"**{entry.id}**" if entry.priority == "c" else entry.id


def _kips(entry: Entry) -> str:
    return ", ".join(f"KIP-{number}" for number in entry.kips)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _tests(names: Sequence[str]) -> str:
    return "<br>".join(f"`{name}`" for name in names) or "-"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say whether it is up to date: 0 yes, 1 no, 2 wrong usage."""
    if list(arguments) not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = page(entries(), marked())
    current = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if arguments:
        PAGE.write_text(text, encoding="utf-8")
        print(f"docs/conformance.md {'was up to date' if text == current else 'written'}")
        return 0
    print(
        "docs/conformance.md is up to date" if text == current else "docs/conformance.md is not up to date: make docs"
    )
    return 0 if text == current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
