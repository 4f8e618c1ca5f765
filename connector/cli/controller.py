"""`keyorder controller`: a process that finishes what others left open, and scales topics by a policy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import click

from ...partitioner.errors import KeyorderError
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..topology.drain_job import DrainJob
from ..topology.folding import FoldJob
from ..topology.forget_job import ForgetJob
from ..topology.scaling_policy import ScalingPolicies, load_policies
from ..topology.supervised import SupervisedCluster
from ..topology.supervisor import Event, Job, Supervisor, failure
from .connecting import Connection, connection_options
from .main import exit_code
from .output import output_option
from .signals import stopped_by_signals

# How long a change under way may take to end after a signal; records are held for 20 s at most.
_GRACE = 25.0


@click.command()
@click.option("--topic", "topics", multiple=True, help="A topic to look after; repeatable. [default: all managed ones]")
@click.option(
    "--takeover-after",
    type=click.FloatRange(min=0),
    default=15.0,
    show_default=True,
    help="Seconds that an open change may stand still. Before records are held, in its plan, four times as many.",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--autoscale",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="POLICY.toml",
    help="Grow and shrink by this policy; what would be done is only told unless --apply is given.",
)
@click.option("--apply", is_flag=True, help="Carry decisions of --autoscale out.")
@click.option("--dry-run", is_flag=True, help="Only tell decisions of --autoscale. This is the default.")
@click.option(
    "--forget-writers-after",
    type=click.FloatRange(min=60),
    default=3600.0,
    show_default=True,
    help="Seconds after which records of writers that are gone are erased from the control topic.",
)
@click.option("--once", is_flag=True, help="End when what is open now is finished and each load was measured once.")
@output_option
@connection_options(timeout=120)
def controller(
    connection: Connection,
    topics: Sequence[str],
    takeover_after: float,
    interval: float,
    autoscale: Path | None,
    apply: bool,
    dry_run: bool,
    forget_writers_after: float,
    once: bool,
    output: str,
) -> None:
    """Look after topics until SIGTERM or SIGINT: finish changes that were cut off, scale by a policy.

    Any number may run at the same time. With --output json each event is an object on a line of its own.
    --timeout bounds each change. The exit code of --once is 1 if anything failed.
    """
    if apply and (dry_run or autoscale is None):
        raise click.UsageError("--apply goes with --autoscale, and not with --dry-run.")
    policies = None if autoscale is None else load_policies(autoscale)
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        for topic in topics:
            admin.timeline(topic)
    cluster = SupervisedCluster(connection.config, connection.timeout)
    jobs: list[Job] = []
    supervisor = Supervisor(cluster, topics, jobs, takeover_after, policies, apply)
    jobs += periodic_jobs(connection, lambda: supervisor.only_mine(cluster.timelines()), lambda: supervisor.running)
    forgetting = ForgetJob(connection.config, forget_writers_after)
    jobs.append(forgetting)
    facts = {"topics": list(topics) or "all", "autoscale": _mode(policies, apply), "takeover_after_s": takeover_after}
    code = 0
    with stopped_by_signals() as stop:
        _tell(Event("started", facts=facts), output)
        try:
            code = _turns(supervisor, stop, interval, once, output)
        except KeyorderError as error:
            if output != "json":
                raise
            # Whoever reads lines gets this one as a line too.
            _tell(Event("failed", facts=failure(error)), output)
            code = exit_code(error)
        finally:
            _end(supervisor, output)
            forgetting.close()
            cluster.close()
    click.get_current_context().exit(code)


def _turns(supervisor: Supervisor, stop: threading.Event, interval: float, once: bool, output: str) -> int:
    """Turn after turn, until there is a reason to end. The exit code."""
    failed = False
    while not stop.is_set():
        events = supervisor.turn(clock.now())
        for event in events:
            _tell(event, output)
            failed = failed or event.event in ("failed", "unreachable", "unreadable")
        if once and (supervisor.settled or any(event.event == "unreachable" for event in events)):
            break
        stop.wait(interval)
    return 1 if once and failed else 0


def periodic_jobs(
    connection: Connection, timelines: Callable[[], Mapping[str, Timeline]], busy: Callable[[], Collection[str]]
) -> list[Job]:
    """What runs beside the changes. timelines: the topics to look after. busy: those that are being changed here."""
    return [DrainJob(connection.config, timelines, busy), FoldJob(connection.config, timelines, busy)]


def _end(supervisor: Supervisor, output: str) -> None:
    """Wait a while for changes under way: one that is cut off holds records until somebody finishes it."""
    deadline = clock.now() + _GRACE
    pause = threading.Event()
    while supervisor.running and clock.now() < deadline:
        for event in supervisor.finished(clock.now()):
            _tell(event, output)
        pause.wait(0.1)
    _tell(Event("stopped", facts={"left_open": list(supervisor.running)}), output)


def _mode(policies: ScalingPolicies | None, apply: bool) -> str:
    if policies is None:
        return "off"
    return "apply" if apply else "dry-run"


def _tell(event: Event, output: str) -> None:
    document = event.document()
    if output == "json":
        click.echo(json.dumps({**document, "at_ms": clock.wall_ms()}, default=str))
        return
    words = [str(document.pop("event"))]
    if "topic" in document:
        words.append(str(document.pop("topic")))
    error = document.pop("error", None)
    if isinstance(error, dict):
        words.append(str(error["message"]))
    words += [f"{name.replace('_', ' ')}: {value}" for name, value in document.items() if value not in (None, [])]
    click.echo("  ".join(words))
