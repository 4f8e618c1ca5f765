"""A campaign: loads, changes of the count, and one fault after another, each struck in a chosen phase of a change.

    python tests/faults/campaign.py --minutes 10 --seed 1 --faults broker-kill,hold-Produce

An episode is one load on a topic of its own, with some rounds; a round is a change and a fault, which strikes in one phase of
the change or, in a sweep, in each. After each round everybody has to get on; after an episode its history is judged. What was
struck least so far, by the kept record, comes first.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
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
from faults.workloads import KINDS, Load, wait
from keyorder.connector import clock

ROOT = Path(__file__).parents[2]
RECORD, PAGE = ROOT / "docs" / "faults.json", ROOT / "docs" / "faults.md"
FEWEST, MOST = 4, 12  # partitions
ROUNDS = 4  # of an episode
ENOUGH = 3  # rounds in which a fault has struck in a phase
EVERY = "every phase"  # the aim of a sweep


@dataclass
class Blow:
    """A fault that was in force once. Times are seconds of keyorder's clock. touched: messages, or 1 where none are chosen."""

    target: str
    began: float
    ended: float
    touched: int


@dataclass
class Round:
    """One change and one fault. phases: in which of them the fault did something."""

    fault: str
    aim: str
    count: int
    blows: list[Blow]
    recovered: float
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
    aims = list(PHASES) if aim == EVERY else [aim]
    if PHASES[0] in aims:
        _leave_open(config, load.run.topic, count)
    changes = [ChangeProcess(config, load.run.topic, count, aims)]
    struck: list[tuple[Blow, Strike]] = []
    try:
        while True:
            if phase := changes[-1].reached(PATIENCE):
                aims.remove(phase)
                struck.append(_strike(load, name, changes[-1], chance))
            elif changes[-1].succeeded(PATIENCE):
                break
            else:
                print(f"  a controller of {load.run.topic} has ended: {changes[-1].notes[-5:]}", flush=True)
                assert len(changes) < 10 + len(PHASES), [c.notes[-5:] for c in changes]
                changes.append(ChangeProcess(config, load.run.topic, count, aims))
        assert load.run.count() == count
        assert struck, f"the change never stood in {aim}"
        load.await_progress()
    finally:
        for each in changes:
            each.kill()
    steps = [step for each in changes for step in each.steps]
    hit = {phase for blow, strike in struck for phase in phases_struck(steps, strike, blow.began, blow.ended)}
    phases = [phase for phase in PHASES if phase in hit]
    return Round(name, aim, count, [blow for blow, _ in struck], clock.now(), phases, steps, len(changes))


def _strike(load: Load, name: str, change: ChangeProcess, chance: random.Random) -> tuple[Blow, Strike]:
    """Do harm while the change stands in a phase, and have it go on once a message was touched, where some are chosen."""
    fault = FAULTS[name]
    field = Field(load.kafka, load.run, change, load.writers, load.readers, load.start)
    began = clock.now()
    with fault.harm(field, chance) as strike:
        while strike.rules and not any(rule.hits for rule in strike.rules) and clock.now() < began + fault.seconds:
            wait(0.05)
        change.go_on()
        wait(fault.seconds)  # how long it lasts is the fault's own
        ended = clock.now()
    touched = sum(len(rule.hits) for rule in strike.rules) if strike.rules else 1
    return Blow(strike.target, began, ended, touched), strike


def _leave_open(config: Mapping[str, str], topic: str, count: int) -> None:
    """An attempt whose controller has died: only such a one is cleared."""
    change = ChangeProcess(config, topic, count, ["collecting"])
    try:
        change.reached(PATIENCE)
    finally:
        change.kill()


def plan(
    seed: int, faults: Sequence[str], covered: Mapping[str, Mapping[str, int]], sweep: bool = False
) -> list[tuple[str, str]]:
    """Every fault in every phase, or in a sweep of them. What was struck least so far comes first; the rest is chance."""

    def done(pair: tuple[str, str]) -> int:
        fault, aim = pair
        times = covered.get(fault, {})
        return sum(min(ENOUGH, times.get(phase, 0)) for phase in (PHASES if aim == EVERY else [aim]))

    chance = random.Random(seed)
    pairs = [(fault, aim) for fault in faults for aim in ([EVERY] if sweep else PHASES)]
    chance.shuffle(pairs)
    return sorted(pairs, key=done)


def run(
    pairs: Sequence[tuple[str, str]], minutes: float, seed: int, kinds: Sequence[str], folder: Path
) -> list[Episode]:
    """Episodes of these pairs of fault and aim until the time is over; each is finished. Tells them on standard output."""
    until = clock.now() + 60 * minutes
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
            f"  {each.fault} ({', '.join(dict.fromkeys(blow.target for blow in each.blows))}) in {each.aim}:"
            f" {sum(blow.touched for blow in each.blows)} times, in {', '.join(each.phases) or 'no phase'};"
            f" to {each.count} partitions, {each.attempts} controllers,"
            f" got on after {each.recovered - each.blows[-1].ended:.1f} s"
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
    parser.add_argument(
        "--sweep", action="store_true", help="a fault strikes in each phase of its change, one after another"
    )
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
        pairs = plan(options.seed, faults, report.coverage(report.load(RECORD)), options.sweep)
        episodes = run(pairs, options.minutes, options.seed, kinds, folder)
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
