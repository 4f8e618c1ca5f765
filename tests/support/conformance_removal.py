"""The proof by removal: a behaviour is shown only by a test that fails once the behaviour is taken out.

    python tests/support/conformance_removal.py                    every spot that has no result yet
    python tests/support/conformance_removal.py K253-41 layout     the spots of some ids, or some spots by name
    options: --again (do not use earlier results), --jobs N (copies at work at a time)

docs/conformance_spots.toml names the *spots*: for each a patch of product code that takes a behaviour out, the ids that
lose it and the tests that have to fail then; and for ids without a spot why nothing can be removed. Each patch is
applied in a copy of the checkout, never in the checkout, and the named tests run there. An id of a spot is

- red: a test that bears its mark has failed, with an assertion or an error;
- slow red: such tests only ran into their time limit;
- green: all tests that bear its mark have passed: they show nothing;
- broken: the tests could not run, or the patch can no longer be applied.

Results are kept in build/removal/results.json and used again as long as spot, patched files and test files are the same.
The exit code is 0 when every id asked for is red, 1 otherwise, 2 for a wrong usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import venv
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "conformance_spots.toml"
RESULTS = ROOT / "build" / "removal" / "results.json"
OUTCOMES = ("red", "slow red", "green", "broken")
TEST_LIMIT_S = 180  # of one test; a removed behaviour may make a test wait for what never comes
SPOT_LIMIT_S = 900


@dataclass(frozen=True, slots=True)
class Patch:
    """In `file` (from the checkout's root) the text `old`, which stands there exactly once, becomes `new`."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The patched text. Raises ValueError where `old` does not stand exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: the text to be replaced stands there {text.count(self.old)} times")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Spot:
    """One removal. takes: what is taken out, in words. tests: node ids; each bears the mark of one of `ids`."""

    name: str
    ids: tuple[str, ...]
    takes: str
    patches: tuple[Patch, ...]
    tests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spots:
    """The whole list. reasons: {id: why nothing can be removed}."""

    spots: Mapping[str, Spot]
    reasons: Mapping[str, str]


@dataclass(slots=True)
class Result:
    """What became of one spot. outcomes: {id: one of OUTCOMES}; failed: {test: the first line of its failure}."""

    content: str
    commit: str
    outcomes: dict[str, str]
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def load(text: str | None = None) -> Spots:
    """The spots and reasons of the source. Raises ValueError for an entry that lacks something."""
    found = tomllib.loads(SOURCE.read_text(encoding="utf-8") if text is None else text)
    reasons = {id: reason for reason, ids in _by_reason(found.pop("nothing", [])) for id in ids}
    return Spots({name: _spot(name, fields) for name, fields in found.items()}, reasons)


def _by_reason(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    for entry in entries:
        if set(entry) != {"ids", "reason"}:
            raise ValueError(f"an entry of [[nothing]] has ids and a reason, not {sorted(entry)}")
        yield entry["reason"], entry["ids"]


def _spot(name: str, fields: Mapping[str, Any]) -> Spot:
    patches = [fields] if "file" in fields else []
    patches += fields.get("more", [])
    extra = set(fields) - {"ids", "takes", "file", "old", "new", "tests", "more"}
    if extra or not patches:
        raise ValueError(f"spot {name}: {f'unknown fields {sorted(extra)}' if extra else 'no patch'}")
    return Spot(
        name,
        tuple(fields["ids"]),
        fields["takes"],
        tuple(Patch(each["file"], each["old"], each["new"]) for each in patches),
        tuple(fields["tests"]),
    )


def bare(test: str) -> str:
    """A test's node id without its parameters."""
    return test.partition("[")[0]


def content(spot: Spot, root: Path = ROOT) -> str:
    """A hash over the spot and over the files that it patches and runs: equal ones give equal results."""
    digest = hashlib.sha256(json.dumps(asdict(spot), sort_keys=True).encode())
    for file in sorted({patch.file for patch in spot.patches} | {test.partition("::")[0] for test in spot.tests}):
        path = root / file
        digest.update(repr((file, path.read_bytes() if path.exists() else None)).encode())
    return digest.hexdigest()[:16]


class Copy:
    """A copy of the checkout with a Python that imports from it, `-I` or not, in programs that tests start as well."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "keyorder"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = folder / "venv" / "lib" / version / "site-packages"
        # Plain paths: the installed checkout's own .pth file, which would lead back to it, is not looked at.
        lines = [str(folder), *(path for path in sys.path if path.endswith("site-packages"))]
        (packages / "removal.pth").write_text("".join(f"{line}\n" for line in lines))
        command = folder / "venv" / "bin" / "keyorder"
        command.write_text(
            f"#!{self.python}\nimport sys\nfrom keyorder.connector.cli.main import main\nsys.exit(main())\n"
        )
        command.chmod(0o755)

    @contextmanager
    def patched(self, spot: Spot) -> Iterator[None]:
        """The copy with the spot's patches, which are taken back at the end. Raises ValueError as Patch.applied."""
        before: dict[Path, str] = {}
        try:
            for patch in spot.patches:
                path = self.root / patch.file
                text = path.read_text(encoding="utf-8")
                before.setdefault(path, text)
                self._write(path, patch.applied(text))
            yield
        finally:
            for path, text in before.items():
                self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        stamp = path.stat().st_mtime + 2  # compiled code is told apart by whole seconds
        path.write_text(text, encoding="utf-8")
        os.utime(path, (stamp, stamp))

    def test(self, tests: Sequence[str]) -> tuple[dict[str, str], set[str], str]:
        """Run tests: (what each failed one said first, those that passed, the end of the output)."""
        report = self.root.parent / "report.xml"
        report.unlink(missing_ok=True)
        command = [str(self.python), "-Im", "pytest", *tests, "-q", "-n", "0", "-p", "no:cacheprovider"]
        command += [f"--timeout={TEST_LIMIT_S}", f"--junitxml={report}", "-o", "junit_family=xunit1", "--tb=short"]
        try:
            run = subprocess.run(
                command, cwd=self.root, capture_output=True, text=True, check=False, timeout=SPOT_LIMIT_S
            )
        except subprocess.TimeoutExpired as late:
            return {}, set(), f"not over after {late.timeout:.0f} s"
        failed, passed = _judged(report) if report.exists() else ({}, set())
        return failed, passed, (run.stdout + run.stderr)[-2000:]


def _judged(report: Path) -> tuple[dict[str, str], set[str]]:
    """What pytest reported, by node id without parameters; a set-up or import that failed is neither."""
    failed: dict[str, str] = {}
    passed: set[str] = set()
    for case in ElementTree.parse(report).iter("testcase"):
        names = case.get("classname", "").removeprefix((case.get("file") or "").removesuffix(".py").replace("/", "."))
        inner = [name for name in names.split(".") if name]
        test = "::".join([case.get("file") or "", *inner, case.get("name", "")])
        failure = case.find("failure")
        if failure is not None:
            failed[bare(test)] = (failure.get("message") or "failed").strip().splitlines()[0][:200]
        elif case.find("error") is None and case.find("skipped") is None:
            passed.add(bare(test))
    return failed, passed - set(failed)


def outcomes(
    spot: Spot, marks: Mapping[str, Sequence[str]], failed: Mapping[str, str], passed: Iterable[str]
) -> dict[str, str]:
    """What the run of a spot says of each of its ids."""
    passed = set(passed)
    found: dict[str, str] = {}
    for id in spot.ids:
        mine = {bare(test) for test in spot.tests} & set(marks.get(id, ()))
        said = [failed[test] for test in mine if test in failed]
        if said:
            found[id] = "slow red" if all("Timeout" in text for text in said) else "red"
        else:
            found[id] = "green" if mine and mine <= passed else "broken"
    return found


def run(spot: Spot, copy: Copy, marks: Mapping[str, Sequence[str]], commit: str) -> Result:
    """Take the spot's behaviour out of the copy and run its tests."""
    began = time.monotonic()
    # Of the copy: the checkout may have changed since it was made.
    result = Result(content(spot, copy.root), commit, dict.fromkeys(spot.ids, "broken"))
    try:
        with copy.patched(spot):
            result.failed, passed, said = copy.test(spot.tests)
    except ValueError as gone:
        result.failed = {"": str(gone)}
        return result
    result.outcomes = outcomes(spot, marks, result.failed, passed)
    if "broken" in result.outcomes.values():
        result.failed[""] = said
    result.seconds = round(time.monotonic() - began, 1)
    return result


def chosen(spots: Spots, words: Sequence[str]) -> list[Spot]:
    """The spots that bear one of the names or ids; all without a word. Raises KeyError for an unknown word."""
    for word in words:
        if word not in spots.reasons and not any(word == s.name or word in s.ids for s in spots.spots.values()):
            raise KeyError(word)
    return [s for s in spots.spots.values() if not words or s.name in words or set(s.ids) & set(words)]


def kept() -> dict[str, Result]:
    """The results of earlier runs by the spot's name."""
    if not RESULTS.exists():
        return {}
    return {name: Result(**fields) for name, fields in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def summary(spots: Sequence[Spot], results: Mapping[str, Result], reasons: Mapping[str, str]) -> tuple[list[str], bool]:
    """A table of all that is not red, the counts, and whether every id of the spots is red."""
    lines, seen = [], {outcome: set[str]() for outcome in OUTCOMES}
    for spot in spots:
        result = results.get(spot.name)
        for id in spot.ids:
            outcome = result.outcomes.get(id, "broken") if result else "broken"
            seen[outcome].add(id)
            if outcome != "red":
                said = next(iter(result.failed.values()), "") if result else "not run"
                lines.append(f"{id:8} {outcome:9} {spot.name}: {spot.takes}" + (f"\n{said}" if said else ""))
    worse = seen["green"] | seen["broken"]
    red = (seen["red"] | seen["slow red"]) - worse
    slow = seen["slow red"] - seen["red"] - worse
    lines.append(
        f"{len(red)} ids red with their behaviour removed ({len(slow)} by a time limit alone), "
        f"{len(seen['green'])} still green, {len(seen['broken'])} broken, by {len(spots)} spots; "
        f"{len(reasons)} ids have nothing to be removed"
    )
    return lines, not worse


def main(arguments: Sequence[str]) -> int:
    """Run what has no result yet and print what came of all that was asked for."""
    parser = argparse.ArgumentParser(description="Take behaviours out and see their tests fail.")
    parser.add_argument("words", nargs="*", metavar="ID", help="ids, or names of spots; all without one")
    parser.add_argument("--again", action="store_true", help="do not use results of earlier runs")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="copies at work at a time (%(default)s)")
    given = parser.parse_args(arguments)
    from support import conformance

    spots, marks = load(), conformance.marked()
    try:
        wanted = chosen(spots, given.words)
    except KeyError as unknown:
        print(f"no spot has the name or id {unknown}", file=sys.stderr)
        return 2
    for id in given.words:
        if id in spots.reasons:
            print(f"{id:8} nothing to be removed: {spots.reasons[id]}")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.strip()
    results = kept()
    due = [s for s in wanted if given.again or s.name not in results or results[s.name].content != content(s)]
    lock = threading.Lock()

    def keep(spot: Spot, result: Result) -> None:
        with lock:
            results[spot.name] = result
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            known = {name: asdict(each) for name, each in results.items() if name in spots.spots}
            RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True), encoding="utf-8")
            told = ", ".join(f"{id} {outcome}" for id, outcome in result.outcomes.items())
            print(f"{spot.name} ({result.seconds} s): {told}", flush=True)

    if due:
        with ExitStack() as stack:
            free: SimpleQueue[Copy] = SimpleQueue()
            for _ in range(min(given.jobs, len(due))):
                free.put(Copy(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyorder-removal-")))))

            def one(spot: Spot) -> None:
                copy = free.get()
                try:
                    keep(spot, run(spot, copy, marks, commit))
                finally:
                    free.put(copy)

            with ThreadPoolExecutor(given.jobs) as pool:
                for _ in pool.map(one, due):
                    pass
    lines, good = summary(wanted, results, {} if given.words else spots.reasons)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main(sys.argv[1:]))
