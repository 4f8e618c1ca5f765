"""A campaign: loads, changes of the count, and one fault after another, each struck in a chosen phase of a change.

    python tests/faults/campaign.py --minutes 10 --seed 1 --faults broker-kill,hold-Produce

An episode is one load on a topic of its own, with some rounds; a round is a change and a fault. After each round everybody
has to get on; after an episode its history is judged. What was struck least so far, by the kept record, comes first.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import threading
import traceback
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from faults import report
from faults.change import PHASES, ChangeProcess, Step
from faults.cluster import PATIENCE, FaultyCluster
from faults.nemesis import CONTROLLER, FAULTS, Field, Strike
from faults.workloads import KINDS, Load
from keyorder.connector import clock

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "docs" / "faults.json", ROOT / "docs" / "faults.md"
FEWEST, MOST = 4, 12  # partitions
ROUNDS = 4  # of an episode


@dataclass
class Round:
    """One change and one fault. Times are seconds of keyorder's clock. phases: in which of them the fault did something."""

    fault: str
    aim: str
    target: str
    count: int
    began: float
    ended: float
    recovered: float
    touched: int
    phases: list[str]
    steps: list[Step]
    attempts: int


@dataclass
class Episode:
    """One load and what it went through. plan: (fault, phase) of each round. wrong: why it is no success, "" if it is."""

    kind: str
    seed: int
    plan: list[tuple[str, str]]
    rounds: list[Round] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    wrong: str = ""
    began: float = 0.0
    ended: float = 0.0


def phases_struck(steps: Sequence[Step], strike: Strike, began: float, ended: float) -> list[str]:
    """The phases in which a fault did something: touched a message, or without rules was in force."""
    found = []
    for place, step in enumerate(steps):
        until = steps[place + 1].at if place + 1 < len(steps) else float("inf")
        if strike.rules:
            hit = any(step.at <= at < until for rule in strike.rules for at in rule.hits)
        else:
            hit = step.at <= ended and until > began
        if hit and step.phase not in found:
            found.append(step.phase)
    return found


def play(kafka: FaultyCluster, folder: Path, episode: Episode) -> None:
    """Go through an episode. What goes wrong is in `wrong`."""
    chance = random.Random(episode.seed)
    topic = f"{episode.kind}-{episode.seed}-{uuid.uuid4().hex[:6]}"
    episode.began = clock.now()
    try:
        with Load(kafka, folder, topic, episode.kind, episode.seed) as load:
            for fault, aim in episode.plan:
                episode.rounds.append(_round(load, fault, aim, chance))
            verdict, wrong = load.finish()
        episode.figures = {
            name: getattr(verdict, name)
            for name in (
                "records", "keys_moved", "acknowledged", "failed", "unknown_present", "unknown_absent",
                "reordered_keys", "lost", "illegal_duplicates",
            )
        }  # fmt: skip
        if not verdict.valid or wrong:
            episode.wrong = verdict.summary() + "\n".join(["", *wrong[:5]])
    except Exception:
        episode.wrong = traceback.format_exc()
    episode.ended = clock.now()


def _round(load: Load, name: str, aim: str, chance: random.Random) -> Round:
    config = {**load.kafka.client_config(), "client.id": CONTROLLER}
    now = load.run.count()
    count = chance.choice([n for n in range(FEWEST, MOST + 1) if n != now])
    if aim == "clearing":
        _leave_open(config, load.run.topic, count)
    change = ChangeProcess(config, load.run.topic, count, aim)
    field = Field(load.kafka, load.run, change, load.writers, load.readers, load.start)
    changes = [change]
    try:
        change.reached(PATIENCE)
        began = clock.now()
        with FAULTS[name].harm(field, chance) as strike:
            change.go_on()
            threading.Event().wait(FAULTS[name].seconds)  # how long it lasts is the fault's own
            ended = clock.now()
        while not changes[-1].succeeded(PATIENCE):
            print(f"  a controller of {load.run.topic} has ended: {changes[-1].notes[-5:]}", flush=True)
            assert len(changes) < 10, [c.notes[-5:] for c in changes]
            changes.append(ChangeProcess(config, load.run.topic, count))
        assert load.run.count() == count
        load.await_progress()
    finally:
        for each in changes:
            each.kill()
    steps = [step for each in changes for step in each.steps]
    touched = sum(len(rule.hits) for rule in strike.rules) if strike.rules else 1
    struck = phases_struck(steps, strike, began, ended)
    return Round(name, aim, strike.target, count, began, ended, clock.now(), touched, struck, steps, len(changes))


def _leave_open(config: Mapping[str, str], topic: str, count: int) -> None:
    """An attempt whose controller has died: only such a one is cleared."""
    change = ChangeProcess(config, topic, count, "collecting")
    try:
        change.reached(PATIENCE)
    finally:
        change.kill()


def plan(seed: int, faults: Sequence[str], covered: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    """Every fault in every phase, those first that were struck least so far; the rest is chance."""
    chance = random.Random(seed)
    pairs = [(fault, phase) for fault in faults for phase in PHASES]
    chance.shuffle(pairs)
    return sorted(pairs, key=lambda pair: covered.get(pair[0], {}).get(pair[1], 0))


def run(minutes: float, seed: int, faults: Sequence[str], kinds: Sequence[str], folder: Path) -> list[Episode]:
    """Episodes until the time is over; each is finished. Tells them on standard output."""
    until = clock.now() + 60 * minutes
    pairs = plan(seed, faults, report.coverage(report.load(RECORD)))
    episodes: list[Episode] = []
    try:
        while clock.now() < until:
            with FaultyCluster() as kafka:
                kafka.await_full_isr()
                while clock.now() < until:
                    number = len(episodes)
                    chosen = [pairs[(number * ROUNDS + i) % len(pairs)] for i in range(min(ROUNDS, len(pairs)))]
                    episode = Episode(kinds[number % len(kinds)], seed * 1000 + number, chosen)
                    own = folder / f"episode-{episode.seed}"
                    own.mkdir(parents=True, exist_ok=True)
                    play(kafka, own, episode)
                    episodes.append(episode)
                    tell(episode)
                    if episode.wrong:
                        break  # what it has left on the cluster would be in the way of the next one
    except KeyboardInterrupt:
        print("interrupted: the episode that was under way does not count")
    return episodes


def replay(kind: str, seed: int, chosen: list[tuple[str, str]], folder: Path) -> Episode:
    """One episode again."""
    episode = Episode(kind, seed, chosen)
    with FaultyCluster() as kafka:
        kafka.await_full_isr()
        play(kafka, folder, episode)
    tell(episode)
    return episode


def tell(episode: Episode) -> None:
    """An episode in a few lines."""
    print(f"{episode.kind}, seed {episode.seed}, {episode.ended - episode.began:.0f} s: {episode.figures}")
    for each in episode.rounds:
        print(
            f"  {each.fault} ({each.target}) in {each.aim}: {each.touched} times, in {', '.join(each.phases) or 'no phase'};"
            f" to {each.count} partitions, {each.attempts} controllers, got on after {each.recovered - each.ended:.1f} s"
        )
    if episode.wrong:
        print(
            f"WRONG, repeat it: make jepsen SEED={episode.seed} KINDS={episode.kind} PLAN="
            + ",".join(f"{fault}@{phase.replace(' ', '_')}" for fault, phase in episode.plan)
        )
        print(episode.wrong)
    sys.stdout.flush()


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(100_000))
    parser.add_argument("--faults", default="", help=f"some of: {', '.join(FAULTS)}")
    parser.add_argument("--kinds", default="", help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--plan", default="", help="one episode again: fault@phase,...; with --kinds and --seed")
    parser.add_argument("--folder", type=Path, default=None, help="where histories and the report go")
    parser.add_argument("--keep", action="store_true", help=f"add to {RECORD.relative_to(ROOT)}")
    options = parser.parse_args()
    faults = options.faults.split(",") if options.faults else list(FAULTS)
    kinds = options.kinds.split(",") if options.kinds else list(KINDS)
    unknown = (set(faults) - FAULTS.keys()) | (set(kinds) - set(KINDS))
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="keyorder-faults-"))
    if options.plan:
        chosen = [(f, p.replace("_", " ")) for f, _, p in (pair.partition("@") for pair in options.plan.split(","))]
        episodes = [replay(kinds[0], options.seed, chosen, folder)]
    else:
        episodes = run(options.minutes, options.seed, faults, kinds, folder)
    document = {"seed": options.seed, "faults": faults, "episodes": [asdict(episode) for episode in episodes]}
    report.write(document, folder)
    print(report.summary(document))
    print(f"report: {folder / 'report.html'}")
    if options.keep:
        report.add(RECORD, document)
        report.update_page(PAGE, report.load(RECORD), list(FAULTS))
    struck = Counter(phase for episode in episodes for each in episode.rounds for phase in each.phases)
    if any(episode.wrong for episode in episodes):
        return 1
    if not struck:
        print("INVALID: no fault did anything during a change")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main())
