"""Random histories on a real broker whose log cleaner runs: after cleaning the survivor of each key is its highest version.

Writers race each other and the compactor, the partition count changes under them, compactors are killed, and a second
round of writes comes after the first cleaning. What has to survive is worked out from what the writers sent, by sorting.
KEYORDER_HISTORIES says how many (10), KEYORDER_SEED with which to begin (0).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from keyorder import OrderedProducer, TopicAdmin
from keyorder.compaction.compactor import TopicCompactor
from keyorder.compaction.strategy import encode_version
from keyorder.compaction.view import CompactedView
from keyorder.connector import clock
from keyorder.connector.crash import COMPACTOR_STEPS
from support.cleaning import HELD, ROLLER, Kept, clean
from support.cluster import KafkaUnderTest

HISTORIES = int(os.environ.get("KEYORDER_HISTORIES", "10"))
FIRST = int(os.environ.get("KEYORDER_SEED", "0"))
KEYS = [f"key-{number}" for number in range(12)]
ABSENT = -(2**70)


@dataclass
class History:
    """One topic and all that was sent to it: per key (version, number of the record of its writer, value)."""

    seed: int
    topic: str
    kind: str
    chance: random.Random
    began: int
    sent: dict[str, list[tuple[int, int, bytes | None]]] = field(default_factory=dict)
    numbers: Counter[int] = field(default_factory=Counter)
    facts: Counter[str] = field(default_factory=Counter)

    def expected(self) -> dict[bytes, bytes | None]:
        """The highest version of each key. Writers never share a version, so a tie is one writer's and its later wins."""
        return {key.encode(): sorted(all_, key=lambda s: s[:2])[-1][2] for key, all_ in self.sent.items()}


def write(kafka: KafkaUnderTest, history: History, writer: int, count: int, seed: int) -> None:
    """One writer's records: many versions come late, some are missing or broken, some are tombstones."""
    chance = random.Random(seed)
    with OrderedProducer(kafka.client_config()) as producer:
        for _ in range(count):
            key = chance.choice(KEYS)
            number = history.numbers[writer] = history.numbers[writer] + 1
            value = None if chance.random() < 0.2 else f"{writer}:{number}".encode()
            version = 1 + chance.randrange(30) * 2 + writer
            headers = [("v", encode_version(version))]
            timestamp = 0
            if history.kind == "timestamp":
                headers, timestamp = [], history.began + version  # the lag counts from it: older ones are not guarded
            elif history.kind == "offset":
                version = number
            elif writer == 0 and chance.random() < 0.1:
                version, headers = ABSENT, chance.choice([[], [("v", b"broken")]])
            producer.produce(history.topic, value, key, headers=headers, timestamp=timestamp)
            history.sent.setdefault(key, []).append((version, number, value))
            if chance.random() < 0.05:
                producer.flush(120)
        assert producer.flush(120) == 0


def compactor(kafka: KafkaUnderTest, history: History, state: Path) -> TopicCompactor:
    """One that goes on where the last one was; without a margin to lose, since the lag is an hour."""
    return TopicCompactor(kafka.client_config(), history.topic, path=state)


def killed(kafka: KafkaUnderTest, history: History, state: Path) -> None:
    """A compactor in a process of its own that dies at a random step, if it gets there."""
    step = history.chance.choice(COMPACTOR_STEPS)
    done = subprocess.run(
        [sys.executable, "-m", "keyorder", "compact", "run", "--bootstrap-server", kafka.bootstrap_servers,
         "--topic", history.topic, "--state", str(state)],
        env={**os.environ, "KEYORDER_CRASH_AT": step}, capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode in (0, -signal.SIGKILL), done
    history.facts[f"killed at {step}"] += done.returncode != 0


def play_round(kafka: KafkaUnderTest, history: History, state: Path, admin: TopicAdmin, compacts: bool) -> None:
    """Writers, a compactor that follows them, and a change of the count in between; then a last pass."""
    chance = history.chance
    writers = 1 if history.kind == "offset" else 2
    threads = [
        threading.Thread(target=write, args=(kafka, history, w, chance.randrange(20, 60), chance.randrange(2**32)))
        for w in range(writers)
    ]
    if compacts and chance.random() < 0.6:
        stop = threading.Event()
        with compactor(kafka, history, state) as following:
            follower = threading.Thread(target=following.follow, args=(stop.is_set, 0.1))
            follower.start()
            run_all(threads, history, admin)
            stop.set()
            follower.join(120)
            assert not follower.is_alive()
        history.facts["followed"] += 1
    else:
        run_all(threads, history, admin)
    if compacts:
        if chance.random() < 0.5:
            killed(kafka, history, state)
        with compactor(kafka, history, state) as it:
            report = it.run()
            history.facts["appends"] += report.appends
            assert it.run().appends == 0


def run_all(threads: list[threading.Thread], history: History, admin: TopicAdmin) -> None:
    """Start the writers, change the count under them perhaps, and wait for them."""
    for thread in threads:
        thread.start()
    if history.chance.random() < 0.5:
        layout = admin.describe(history.topic).layout
        count = history.chance.choice([n for n in range(layout.initial, layout.initial + 4) if n != layout.count])
        (admin.expand if count > layout.count else admin.shrink)(history.topic, count)
        history.facts["changes"] += 1
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def k1(history: History, kept: list[Kept], admin: TopicAdmin) -> list[str]:
    """The keys whose survivor is not their highest version, as sentences.

    At a key's home a stock reader finds one record. A key that moved and was not written since is where it was; at its
    home there may lie what has cleared an earlier stay there.
    """
    described = admin.describe(history.topic)
    layout = described.layout
    layouts = {str(epoch.number).encode(): layout.resized(epoch.count) for epoch in described.epochs}

    def clears(each: Kept) -> bool:
        hint = dict(each.headers).get("keyorder-epoch")
        return each.value is None and hint is not None and layouts[hint].home(each.key or b"") != each.partition

    wrong = []
    for key, value in sorted(history.expected().items()):
        mine = [each for each in kept if each.key == key and not clears(each)]
        home = [each for each in mine if each.partition == layout.home(key)]
        survivors = {each.value for each in home or mine if home or each.value is not None} or {None}
        if survivors != {value}:
            wrong.append(f"seed {history.seed}: {key!r} should be {value!r}, the cleaner left {survivors}")
    return wrong


def play(kafka: KafkaUnderTest, seed: int, folder: Path, compacts: bool = True) -> tuple[History, list[str]]:
    """One history of two rounds; returns it, and what K1 found after each cleaning."""
    chance = random.Random(seed)
    kind = chance.choice(["header"] * 7 + ["timestamp"] * 2 + ["offset"]) if compacts else "header"
    history = History(seed, f"history-{seed}-{uuid.uuid4().hex[:8]}", kind, chance, clock.wall_ms())
    stamp = "CreateTime" if kind == "timestamp" else "LogAppendTime"
    strategy = {"compaction.strategy": kind, "compaction.strategy.header": "v", "message.timestamp.type": stamp}
    admin = TopicAdmin(kafka.client_config())
    admin.create(history.topic, chance.choice([1, 2]), config={**HELD, **strategy, "keyorder.view.age.ms": "100"})
    state = folder / f"state-{seed}"
    found: list[str] = []
    for _ in range(2):
        play_round(kafka, history, state, admin, compacts)
        found += k1(history, clean(kafka, history.topic), admin)
    with CompactedView(kafka.client_config(), history.topic) as view:
        table = {key: value for key, value in view.load().items() if key != ROLLER}
    expected = {key: value for key, value in history.expected().items() if value is not None}
    if compacts and table != expected:
        found.append(f"seed {seed}: the view has {table}, not {expected}")
    history.facts[f"strategy {kind}"] += 1
    history.facts["records"] += sum(map(len, history.sent.values()))
    return history, found


@pytest.mark.kip("K280-01", "K280-02", "K280-08", "K280-11", "K280-12", "K280-19", "K280-20", "C-19")
@pytest.mark.timeout(120 + 20 * HISTORIES)
def test_the_cleaner_leaves_the_highest_version_of_each_key(cleaning_kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """K1 never fires."""
    with ThreadPoolExecutor(3) as pool:
        played = list(pool.map(lambda seed: play(cleaning_kafka, seed, tmp_path), range(FIRST, FIRST + HISTORIES)))

    facts = sum((history.facts for history, _ in played), Counter[str]())
    print(f"\n{HISTORIES} histories: {dict(sorted(facts.items()))}; K1: {sum(len(found) for _, found in played)}")
    assert not any(found for _, found in played), "\n".join(sentence for _, found in played for sentence in found)
    if HISTORIES < 10:
        return  # one that is played again need not have everything
    assert facts["appends"] > 0
    assert facts["changes"] > 0
    assert any(name.startswith("killed") for name, times in facts.items() if times)


@pytest.mark.kip("K280-02")
def test_without_a_compactor_the_wrong_ones_survive(cleaning_kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """The same check on the same kind of history fires: it can fail."""
    _, found = play(cleaning_kafka, 1, tmp_path, compacts=False)

    assert found
