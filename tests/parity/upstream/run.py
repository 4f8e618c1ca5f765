"""Runs confluent-kafka-python's own tests from a checkout, on its clients and on ours, and judges each difference.

    python tests/parity/upstream/run.py CHECKOUT              compares with differences.toml; exit code 1 if it is not complete
    python tests/parity/upstream/run.py CHECKOUT -k Producer  only files with this in their path
    python tests/parity/upstream/run.py CHECKOUT --write      keeps the counts, of which docs/client-parity.md is made
    python tests/parity/upstream/run.py CHECKOUT --protocol consumer    the integration tests once more, in groups of KIP-848

Nothing of the checkout is imported into this process or kept: its tests are copied into a temporary folder with the
import of the clients replaced (rewriting.py), and run there, a process per file, on brokers started for the run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from rewriting import rewrite_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
DIFFERENCES = HERE / "differences.toml"
# Tests that interrupt their own process: each gets one.
ALONE = frozenset({"test_Wakeable.py"})
# What has nothing to replace, or needs more than a broker: with the reason that the page gives.
LEFT_OUT = {
    "ShareConsumer": "share consumers: there is none here",
    "share_consumer": "share consumers: there is none here",
    "ducktape": "measures of speed that need ducktape",
    "soak": "a client that runs for days",
    "oauthbearer": "needs a cloud's identity service; the clients in it never reach a broker",
    "integration/admin": "`AdminClient` stays as it is",
    "schema_registry/_async": "asks for an asynchronous registry, which the suite has for brokers of its own alone",
    "/schema_registry/_sync/test_api_client": "makes none of the clients",
    "serdes.py": "makes none of the clients",
}
# Topics that the tests take for granted: with ours a topic has to exist, and a consumer of either kind is told of one that does
# not, which a test that expects nothing within half a second sees or not.
TOPICS = (
    *(f"memory-pressure-topic-{number}" for number in range(5)),
    "test",
    "mytopic",
    "someother",
    "some_topic",
    "test-topic",
    "test_topic",
    "topic",
    "test-consume-edge-topic",
    "test-poll-edge-topic",
    "testmemberid",
)
KINDS = ("stock", "ours")
# Where results.json keeps the counts, and what is added to a test's name in differences.toml, by the groups' protocol.
SECTIONS = {"classic": ("files", ""), "consumer": ("files_of_kip_848", " (KIP-848)")}
FAILED = ("failed", "ended")
SECONDS = 120  # of one test
SILENCE = 600  # seconds without a word of a whole process


@dataclass(frozen=True)
class Outcome:
    """passed, failed, skipped or ended (the process went with it), and the last line of why."""

    what: str
    why: str


def suites(root: Path, replaced: Iterable[Path]) -> list[Path]:
    """The test files below `root` that make one of the clients, themselves or through the suite's own helpers."""
    through = ("TestConsumer", "TestAvroConsumer", "TestDeserializingConsumer", "kafka_cluster")
    found = []
    for path in sorted(root.rglob("test_*.py")):
        name = path.relative_to(root)
        if any(part in f"/{name}" for part in LEFT_OUT):
            continue
        if name in replaced or any(word in path.read_text(encoding="utf-8") for word in through):
            found.append(name)
    return found


def outcomes(folder: Path, file: Path, environment: Mapping[str, str]) -> dict[str, Outcome]:
    """Run one file there. By test, without the file's own name."""
    alone = file.name in ALONE
    more = (
        ("--timeout-method=thread", f"--timeout={SECONDS // 2}") if alone else ()
    )  # what C code waits for ends so alone
    tests = _collected(folder, file, environment) if alone else [str(Path("tests") / file)]
    found: dict[str, Outcome] = {}
    for test in tests:
        found |= _run(folder, test, environment, more)
    return found


def _collected(folder: Path, file: Path, environment: Mapping[str, str]) -> list[str]:
    listed = subprocess.run(
        [*_pytest(), "--collect-only", str(Path("tests") / file)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=SILENCE,
    )  # fmt: skip
    return [line for line in listed.stdout.splitlines() if "::" in line and "share" not in line.lower()]


def _pytest() -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "outcomes", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short",
            f"--timeout={SECONDS}", "-o", "asyncio_mode=auto", "-q"]  # fmt: skip


def _run(folder: Path, test: str, environment: Mapping[str, str], more: Iterable[str]) -> dict[str, Outcome]:
    with tempfile.TemporaryDirectory() as scratch:
        said, log = Path(scratch, "outcomes"), Path(scratch, "log")
        said.touch()
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*_pytest(), *more, test], cwd=folder, env={**environment, "KEYORDER_OUTCOMES": str(said)},
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            size, ended = -1, False
            while not ended:
                try:
                    process.wait(SILENCE)
                    ended = True
                except subprocess.TimeoutExpired:
                    now = said.stat().st_size + log.stat().st_size
                    if now == size:
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                        ended = True
                    size = now
        told = last_words(log.read_text(encoding="utf-8", errors="replace").strip())
        found: dict[str, Outcome] = {}
        for line in said.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            name = entry["test"].partition("::")[2] or "(the file)"
            if entry["outcome"] == "began":
                found.setdefault(name, Outcome("ended", f"the process ended with {process.returncode}: {told}"))
            elif name not in found or found[name].what in ("ended", "passed"):
                found[name] = Outcome(entry["outcome"], entry["why"])
        if not found:
            found["(the file)"] = Outcome("ended", told)
        return found


def last_words(said: str) -> str:
    """What tells why a process ended: of a crash its reason and where it was, not the list of modules at its end."""
    crash = said.rfind("Fatal Python error")
    return said[-300:] if crash < 0 else said[max(0, crash - 500) : crash + 3000]


def documented() -> dict[str, bool]:
    """`file::test` of those that may fail with ours alone, and whether they always do. With what SECTIONS adds to the name."""
    table = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))
    return {test: not reason.get("sometimes") for reason in table["reason"] for test in reason["tests"]}


def kept(what: str, results: Mapping[str, object]) -> None:
    """Keep results of a run, of this client version, in results.json; others of the version stay."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found.setdefault(confluent_kafka.__version__, {}).setdefault(what, {}).update(results)
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def heard() -> None:
    """Let processes started from here hear SIGINT also where this one was started by a shell that ignores it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("-k", default="", help="only files with this in their path")
    parser.add_argument("--write", action="store_true", help="keep the counts in results.json")
    parser.add_argument("--broker", help="one that runs, for both clients in turn; by default one each is started")
    parser.add_argument(
        "--protocol", choices=list(SECTIONS), default="classic", help="of the integration tests' groups"
    )
    asked = parser.parse_args()
    if not (asked.checkout / "tests" / "test_Producer.py").is_file():
        parser.error(f"{asked.checkout} is no checkout of confluent-kafka-python: it has no tests/test_Producer.py")
    heard()
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic
    from keyorder.connector.local.cluster import LocalCluster

    with ExitStack() as stack:
        brokers = dict.fromkeys(KINDS, asked.broker)
        if not asked.broker:  # one each: the suites' groups and topics have the same names in both
            properties = {"auto.create.topics.enable": "true"}
            for kind in KINDS:
                brokers[kind] = stack.enter_context(LocalCluster(properties=properties)).bootstrap_servers
        for address in set(brokers.values()):
            admin = AdminClient({"bootstrap.servers": address})
            for made in admin.create_topics([NewTopic(topic, 1) for topic in TOPICS]).values():
                with suppress(KafkaException):  # it is there
                    made.result(120)
        return judge(asked.checkout, brokers, asked.k, asked.write, asked.protocol)


def judge(checkout: Path, brokers: Mapping[str, str], only: str, write: bool, protocol: str) -> int:
    """Run, print, compare. 0 if each difference has its reason and each reason its difference."""
    known, unexplained, stale = documented(), list[str](), list[str]()
    counts: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="keyorder-upstream-") as scratch:
        folder = Path(scratch)
        replaced = rewrite_folder(checkout / "tests", folder / "tests")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        files = [file for file in suites(folder / "tests", replaced) if only in str(file)]
        section, added = SECTIONS[protocol]
        if protocol != "classic":
            files = [file for file in files if file.parts[0] == "integration"]
        for file in files:
            seen = beside(folder, file, brokers, protocol)
            alone = []
            for test, ours in seen["ours"].items():
                stock, name = seen["stock"].get(test, Outcome("missing", "")), f"{file}::{test}{added}"
                if ours.what in FAILED and stock.what not in FAILED:
                    alone.append(test)
                    if name not in known:
                        unexplained.append(name)
                        print(f"  UNEXPLAINED {name}: {ours.what}: {ours.why}", flush=True)
                elif known.get(name) and ours.what == "passed":
                    stale.append(name)
                    print(f"  NO DIFFERENCE ANY MORE {name}: stock {stock.what}, ours {ours.what}", flush=True)
            counts[str(file)] = {kind: dict(Counter(o.what for o in found.values())) for kind, found in seen.items()}
            print(file, counts[str(file)], flush=True)
            counts[str(file)]["alone"] = sorted(alone)
            if write:
                kept(section, {str(file): counts[str(file)]})
    print(
        f"{len(files)} files; {len(unexplained)} differences without a reason, {len(stale)} reasons without a difference"
    )
    return 1 if unexplained or stale else 0


def beside(folder: Path, file: Path, brokers: Mapping[str, str], protocol: str) -> dict[str, dict[str, Outcome]]:
    """The outcomes of one file by kind, both at once where each has a broker."""
    with ThreadPoolExecutor(len(set(brokers.values()))) as pool:
        return dict(
            zip(KINDS, pool.map(lambda kind: _of_kind(folder, file, kind, brokers, protocol), KINDS), strict=True)
        )


def _of_kind(folder: Path, file: Path, kind: str, brokers: Mapping[str, str], protocol: str) -> dict[str, Outcome]:
    given = {
        "BROKERS": brokers[kind],
        "SR_URL": "mock://",
        "KEYORDER_STAND_INS": kind,
        "PYTHONPATH": os.pathsep.join([str(folder), str(HERE)]),
        "TEST_CONSUMER_GROUP_PROTOCOL": protocol,  # the suites' own name for it
    }
    return outcomes(folder, file, {**os.environ, **given})


if __name__ == "__main__":
    sys.exit(main())
