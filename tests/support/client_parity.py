"""docs/client-parity.md: our clients beside confluent-kafka's, by its own tests and examples and by the tests here.

    python tests/support/client_parity.py            says whether the page is up to date
    python tests/support/client_parity.py --write    makes it

What came of confluent-kafka's own stands in tests/parity/upstream/results.json, which `make parity-upstream` writes; why a test
may fail with ours alone in differences.toml beside it. The tests here are read as source text.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "client-parity.md"
UPSTREAM = ROOT / "tests" / "parity" / "upstream"
HERE = ("tests/parity/clients", "tests/parity/libraries")
# What results.json keeps of a version, and what its heading says; the integration tests run with both protocols of groups.
SECTIONS = {"files": "", "files_of_kip_848": ", groups of KIP-848"}
NOT_RUN = {  # examples
    "`share_consumer*.py`": "nothing to replace: there is no share consumer here",
    "`adminapi*.py`, `oauth_schema_registry.py`, `schema_registry_imds_azure.py`": "nothing to replace: no producer, no consumer",
    "`*_encryption.py`": "not run: they need a key management service",
    "`confluent_cloud.py`, `oauth_oidc_ccloud*.py`": "not run: they need Confluent Cloud or the identity service of a cloud",
    "`fips/*.py`": "not run: they need brokers with certificates of FIPS",
}


_INTRODUCTION = """\
# Beside confluent-kafka's own clients

confluent-kafka-python's own example programs and tests, those of 2.15.0, with nothing changed but the import of its clients,
and further comparisons of our own. `make parity-upstream UPSTREAM=checkout` runs the first two from a checkout of it, on
brokers started for the run, and fails for a difference that has no reason below; `make parity` runs the third. The page is made
from their results (`make docs`).

## Its example programs

On topics that exist, with a schema registry over HTTP and brokers with SASL/PLAIN and OAUTHBEARER. What a consumer reads is what
the producer beside it wrote.

"""


def results() -> dict[str, Any]:
    """By version of the client, {"files": {file: {kind: {outcome: count}, "alone": [test]}}, "examples": {program: ...}}.

    "files_of_kip_848": those that ran once more, in groups of that protocol.
    """
    found: dict[str, Any] = json.loads((UPSTREAM / "results.json").read_text(encoding="utf-8"))
    return dict(sorted(found.items(), key=lambda item: [int(part) for part in item[0].split(".")], reverse=True))


def reasons() -> list[dict[str, Any]]:
    """Why tests may fail with ours alone: {"why", "tests"}."""
    found: list[dict[str, Any]] = tomllib.loads((UPSTREAM / "differences.toml").read_text(encoding="utf-8"))["reason"]
    return found


def compared() -> Iterator[tuple[str, str, str]]:
    """(file, test, what it shows) of the tests that stand here."""
    for folder in HERE:
        for path in sorted((ROOT / folder).glob("test_*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    name = node.name.removeprefix("test_").replace("_", " ")
                    said = (ast.get_docstring(node) or "").split("\n")[0]
                    yield path.relative_to(ROOT).as_posix(), node.name, f"{name}: {said}" if said else name


def _counts(found: dict[str, int]) -> str:
    broken = found.get("failed", 0) + found.get("ended", 0)
    skipped = f" / {found['skipped']} skipped" if found.get("skipped") else ""
    return f"{found.get('passed', 0)} / {broken}{skipped}"


def page() -> str:
    """The page as it should be."""
    lines = _INTRODUCTION.splitlines()
    versions = {version: found["examples"] for version, found in results().items() if "examples" in found}
    lines += [
        "| example | " + " | ".join(f"with {version}" for version in versions) + " |",
        "|---|" + "---|" * len(versions),
    ]
    for program in next(iter(versions.values()), {}):
        cells = [_came(found[program]) if program in found else "" for found in versions.values()]
        lines.append(f"| `{program}` | " + " | ".join(cells) + " |")
    lines += [f"| {programs} | {why} |" + " |" * (len(versions) - 1) for programs, why in NOT_RUN.items()]
    lines += ["", "## Its own tests", "",
              "Those that make one of the clients. A test that names no broker, or `localhost:9092`, is given one.",
              "The integration tests run once more with the suite's own switch for groups of KIP-848,",
              "`TEST_CONSUMER_GROUP_PROTOCOL=consumer`. Where they ask for a schema registry, it is the library's own at `mock://`.",
              "Passed / failed.",
              ]  # fmt: skip
    for version, found in results().items():
        for section, more in SECTIONS.items():
            if section in found:
                lines += ["", f"### confluent-kafka {version}{more}", "", *_table(found[section])]
    lines += ["", "### Why a test fails with keyorder alone", "", "| why | tests | |", "|---|---|---|"]
    for reason in reasons():
        tests = Counter(test.partition("::")[0] for test in reason["tests"])
        where = ", ".join(f"`{file}`" + (f" ({count})" if count > 1 else "") for file, count in tests.items())
        lines.append(f"| {reason['why']} | {len(reason['tests'])} | {where} |")
    lines += [
        "",
        "## What is compared here",
        "",
        "Each behaviour on both clients, or beneath a library that others wrote.",
        "",
    ]
    last = ""
    for file, _, what in compared():
        if file != last:
            lines += [*([""] if last else []), f"`{file}`", ""]
            last = file
        lines.append(f"- {what}")
    return "\n".join([*lines, ""])


def _table(files: dict[str, Any]) -> Iterator[str]:
    sums: dict[str, Counter[str]] = {"stock": Counter(), "ours": Counter()}
    yield from (
        "| file | stock | keyorder | with keyorder alone |",
        "|---|---|---|---|",
    )
    for file, counts in sorted(files.items()):
        for kind, sum_ in sums.items():
            sum_.update(counts[kind])
        yield f"| `{file}` | {_counts(counts['stock'])} | {_counts(counts['ours'])} | {len(counts['alone']) or ''} |"
    alone = sum(len(counts["alone"]) for counts in files.values())
    yield f"| all | {_counts(sums['stock'])} | {_counts(sums['ours'])} | {alone} |"


def _came(found: dict[str, str]) -> str:
    return "runs" if found["ours"] == "runs" else f"does not run: {found['ours']}"


def main() -> int:
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        print(f"{PAGE.relative_to(ROOT)} is not up to date: make docs")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
