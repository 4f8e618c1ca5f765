"""The demonstration from start to end: brokers, topics, load, changes, drain, verdict, report."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from importlib.util import find_spec
from math import inf
from pathlib import Path

from ...partitioner.errors import ConfigError
from .. import clock
from ..local.errors import MissingExtraError
from ..topology.results import Change
from ..verify.recorder import now_ns
from .crew import Crew, Worker
from .latency import HandOver
from .live import Board, Show
from .outcome import Growth, Happening, Outcome, SideResult
from .schedule import Act, schedule
from .series import Series
from .settings import HOT_SHARE, DemoSettings
from .sides import Side
from .topics import DemoTopics

_REFRESH = 0.25
_LAG_EVERY = 1.0
_START, _DRAIN, _STOP, _JUDGE = 60.0, 40.0, 60.0, 240.0


def check_before(settings: DemoSettings) -> None:
    """What would fail at the end of a run fails before its start.

    Raises MissingExtraError without matplotlib, ConfigError for a report folder that cannot be written.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtraError("the report's picture needs matplotlib: pip install 'keyorder[demo]'")
    try:
        settings.report_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.report_dir):
            pass
    except OSError as error:
        problem = f"{settings.report_dir} cannot be written ({error.strerror})"
        raise ConfigError("--report-dir", problem, "name a folder of yours") from None


class Demo:
    """One run. `bootstrap_servers` is a cluster that answers; `keep` leaves the recordings in the report's folder."""

    def __init__(self, settings: DemoSettings, bootstrap_servers: str, show: Show, board: Board) -> None:
        self._settings, self._bootstrap, self._show, self._board = settings, bootstrap_servers, show, board
        self._run = uuid.uuid4().hex[:8]
        self._topics = DemoTopics(bootstrap_servers, f"keyorder-demo-{self._run}", f"keyorder-demo-{self._run}-stock")
        self._writers: list[Worker] = []
        self._growths: list[Growth] = []
        self._happenings: list[Happening] = []
        self._changing: Future[Change] | None = None
        self._changing_since = 0.0
        self._began: float | None = None
        self._next_look = self._next_lag = 0.0
        self._drained = False

    def run(self, keep: bool) -> Outcome:
        """All of it. Raises WorkerFailedError, DemoStalledError, and what the clients raise."""
        folder = Path(tempfile.mkdtemp(prefix="keyorder-demo-"))
        try:
            outcome = self._run_in(folder)
            keep = keep or not outcome.kept
        except Exception:
            keep = True
            raise
        finally:
            kept = self._settle(folder) if keep else None
            shutil.rmtree(folder, ignore_errors=True)
            if kept is not None:
                self._show.tell(f"what the clients recorded is kept in {kept}")
        outcome.folder = kept
        return outcome

    def _run_in(self, folder: Path) -> Outcome:
        settings = self._settings
        with ExitStack() as stack:
            crew = stack.enter_context(Crew(folder))
            mine = Side("keyorder", self._run, self._topics.managed, folder, crew, self._board.keyorder)
            stock = Side("stock", self._run, self._topics.twin, folder, crew, self._board.stock)
            self._crew, self._sides = crew, (mine, stock)
            for side in self._sides:
                stack.callback(side.close)
            stack.callback(self._topics.close)
            if settings.bootstrap_servers is not None:
                stack.callback(self._clean_up)
            self._prepare()
            start = self._load()
            self._drain()
            return self._judge(mine, stock, start)

    def _prepare(self) -> None:
        """Topics, groups with an owner for every partition, and writers that wait for the word."""
        settings = self._settings
        self._show.stage("creating two topics")
        self._topics.create(settings.counts[0])
        self._board.keyorder.epoch = 0
        self._show.stage("starting consumers and writers")
        for side in self._sides:
            side.partitions = settings.counts[0]
            for number in range(settings.members):
                side.add_reader(number + 1, self._bootstrap, settings.work_ms)
        cold = settings.rate * (1 - HOT_SHARE) / settings.writers
        for number in range(settings.writers):
            name = f"writer-{number + 1}"
            spec = {
                "number": number,
                "writers": settings.writers,
                "run": self._run,
                "seed": settings.seed,
                "keys": settings.keys,
                "records_per_key": settings.records_per_key,
                "together": max(1, round(cold)),
                "rate": settings.rate / settings.writers,
                "topics": {side.name: side.topic for side in self._sides},
                "files": {side.name: str(side.writer_file(name)) for side in self._sides},
                "bootstrap_servers": self._bootstrap,
            }
            self._writers.append(self._crew.start(name, "writer", spec))
        self._await("consumers that own all partitions", lambda: all(side.covered for side in self._sides), _START)
        self._await("writers", lambda: all(worker.facts.get("ready") for worker in self._writers), _START)

    def _load(self) -> int:
        """The load and everything that happens under it. Returns when it began, on the recorders' clock."""
        settings = self._settings
        start, self._began = now_ns(), clock.now()
        for worker in self._writers:
            worker.say("go")
        self._show.stage("writing")
        acts = schedule(settings.counts, settings.seconds, settings.members, settings.seed)
        while acts or self._changing is not None or self._elapsed() < settings.seconds:
            self._crew.check()
            if self._changing is not None and self._changing.done():
                self._changed(self._changing.result())
            # A change that takes long delays what comes after it, and the load goes on until all was done.
            if acts and self._elapsed() >= acts[0].at and self._changing is None:
                self._act(acts.pop(0))
            self._look()
            self._pause()
        return start

    def _act(self, act: Act) -> None:
        if act.kind == "grow":
            self._changing_since = self._elapsed()
            self._changing = _in_background(lambda: self._topics.grow(act.count))
            return
        for side in self._sides:
            if act.kind == "join":
                side.add_reader(act.member, self._bootstrap, self._settings.work_ms)
            else:
                side.kill_reader(act.member)
        text = f"consumer {act.member} " + ("joins" if act.kind == "join" else "is killed (SIGKILL)")
        self._happenings.append(Happening(self._elapsed(), act.kind, text))
        self._show.tell(f"{text}, on both sides")

    def _changed(self, change: Change) -> None:
        self._changing = None
        took = change.steps[-1].seconds if change.steps else 0.0
        steps = tuple((step.name, step.seconds) for step in change.steps)
        growth = Growth(self._changing_since, change.before, change.after, change.epoch, took, change.attempts, steps)
        self._growths.append(growth)
        text = f"{change.before} → {change.after} partitions"
        self._happenings.append(Happening(growth.at, "grow", text))
        for side in self._sides:
            side.partitions = change.after
        self._board.keyorder.epoch = change.epoch
        self._show.tell(f"{text}, epoch {change.epoch} committed after {took * 1000:.0f} ms")

    def _drain(self) -> None:
        """Writers finish, then consumers until nothing is left, or a bounded time is over: the checker will tell."""
        self._show.stage("writers finish")
        self._crew.stop(self._writers, _STOP, self._look)
        self._show.stage("consumers finish")
        best: float = inf
        deadline = clock.now() + _DRAIN
        while clock.now() < deadline:
            self._crew.check()
            lags = [self._lag(side) for side in self._sides]
            if lags == [0, 0]:
                break
            if None not in lags and (left := sum(lag or 0 for lag in lags)) < best:
                # Slow is not stuck: the time runs from the last progress.
                best, deadline = left, clock.now() + _DRAIN
            self._look()
            self._pause()
        else:
            self._show.tell(f"the consumers have made no progress for {_DRAIN:.0f} s")
        self._drained = True
        self._crew.stop([worker for side in self._sides for worker in side.readers], _STOP, self._look)

    def _judge(self, mine: Side, stock: Side, start: int) -> Outcome:
        self._show.stage("the checker judges what the clients recorded")
        judges = [side.judge(self._bootstrap, start) for side in (mine, stock)]
        self._await("the verdicts", lambda: not any(judge.running for judge in judges), _JUDGE)
        self._crew.check()
        results = []
        for side, judge in zip((mine, stock), judges, strict=True):
            judge.hear_out()
            facts = judge.facts
            results.append(
                SideResult(side.topic, facts["verdict"], facts["summary"], Series.from_dict(facts["series"]))
            )
        return Outcome(
            seed=self._settings.seed,
            seconds=self._settings.seconds,
            counts=self._settings.counts,
            keyorder=results[0],
            stock=results[1],
            growths=self._growths,
            happenings=self._happenings,
            holds=[held for worker in self._writers for held in worker.holds],
            hand_overs=[HandOver(*row) for row in judges[0].facts["hand_overs"]],
            gates=[HandOver(*row) for row in judges[0].facts["gates"]],
        )

    def _look(self) -> None:
        """Bring the picture up to date, as often as the eye needs it."""
        now = clock.now()
        if now < self._next_look:
            return
        self._next_look = now + _REFRESH
        self._board.elapsed = self._elapsed()
        ask = now >= self._next_lag and not self._drained
        if ask:
            self._next_lag = now + _LAG_EVERY
        for side in self._sides:
            side.look()
            side.state.sent = self._written(side, "sent")
            if ask:
                self._lag(side)
        self._show.refresh()

    def _lag(self, side: Side) -> int | None:
        """Acknowledged and not yet committed by the group; None when the broker cannot say just now."""
        committed = self._topics.committed(side.topic, side.group, side.partitions)
        if committed is None:
            return None
        side.state.lag = max(0, self._written(side, "acknowledged") - committed)
        return side.state.lag

    def _written(self, side: Side, fact: str) -> int:
        return sum(int(worker.facts.get(fact, {}).get(side.name, 0)) for worker in self._writers)

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else clock.now() - self._began

    def _pause(self) -> None:
        time.sleep(0.05)

    def _await(self, what: str, met: Callable[[], bool], timeout: float) -> None:
        self._crew.await_all(what, met, timeout, self._look)

    def _settle(self, folder: Path) -> Path:
        """Move the recordings beside the report, into a folder of this run's: what is there is the user's."""
        target = self._settings.report_dir.absolute() / f"history-{self._run}"
        shutil.move(folder, target)
        return target

    def _clean_up(self) -> None:
        self._topics.remove(side.group for side in self._sides)


def _in_background(work: Callable[[], Change]) -> Future[Change]:
    """Run it on a thread that dies with the process: an executor's would be waited for, also after a Ctrl-C."""
    result: Future[Change] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, name="change", daemon=True).start()
    return result
