"""`keyorder controller`: a process that finishes what others left open, and scales topics by a policy."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...partitioner.errors import ConfigError, KeyorderError
from ...partitioner.timeline import Timeline
from .. import clock
from ..admin import TopicAdmin
from ..topology.claims import Claims
from ..topology.drain_job import DrainJob
from ..topology.expired_writer_job import ExpiredWriterJob
from ..topology.folding import FoldJob
from ..topology.scaling_policy import ScalingPolicies, load_policies
from ..topology.supervised import SupervisedCluster
from ..topology.supervisor import Event, Job, Supervisor, failure
from .connecting import Connection, connection_options
from .main import FAILED, REFUSED, exit_code
from .output import output_option
from .seconds import Seconds
from .signals import stopped_by_signals

if TYPE_CHECKING:
    from ..monitoring.monitor import Monitor

# How long a change under way may take to end after a signal; records are held for 20 s at most.
_GRACE = 25.0
_YEAR = 366 * 24 * 3600


@click.command(short_help="Finish changes that were cut off and scale topics, until ended.")
@click.option("--topic", "topics", multiple=True, help="A topic to look after; repeatable. [default: all managed ones]")
@click.option(
    "--takeover-after",
    type=Seconds(0),
    default=15.0,
    show_default=True,
    help="Seconds without progress after which an open change is taken over; four times as many before records are held.",
)
@click.option(
    "--interval",
    type=Seconds(),
    default=1.0,
    show_default=True,
    help="Seconds between two checks of the topics.",
)
@click.option(
    "--autoscale",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="POLICY.toml",
    help="Grow and shrink by this policy; its decisions are only printed unless --apply is given.",
)
@click.option("--apply", is_flag=True, help="Carry out what --autoscale decides.")
@click.option("--dry-run", is_flag=True, help="Only print what --autoscale decides. This is the default.")
@click.option(
    "--forget-writers-after",
    type=Seconds(60, most=_YEAR),
    default=3600.0,
    show_default=True,
    help="Seconds after which records of writers that are gone are erased from the control topic.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    default=None,
    envvar="KEYORDER_METRICS_PORT",
    show_envvar=True,
    help="Serve /metrics for Prometheus, /healthz and /readyz there; 0 for a free port. Needs keyorder[metrics].",
)
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    envvar="KEYORDER_METRICS_HOST",
    show_default=True,
    show_envvar=True,
    help="The address to serve them on. There is no login: open it to your monitoring alone.",
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
    metrics_port: int | None,
    metrics_host: str,
    once: bool,
    output: str,
) -> None:
    """Look after topics until SIGTERM or SIGINT: finish changes that were cut off, scale by a policy.

    Any number may run at the same time. With --output json each event is an object on a line of its own.
    --timeout bounds each change. A topic that a producer without keyorder seems to write is not scaled, unless the policy
    says accept_stock_writers = true. The exit code of --once is 1 if anything failed, else 3 if that was refused.
    """
    if apply and (dry_run or autoscale is None):
        raise click.UsageError("--apply goes with --autoscale, and not with --dry-run.")
    policies = None if autoscale is None else load_policies(autoscale)
    connection.reach(patient=True)  # a service may be started before its brokers' names are known
    with TopicAdmin(connection.config) as admin:
        for topic in topics:
            admin.timeline(topic)
    cluster = SupervisedCluster(connection.config, connection.timeout)
    jobs: list[Job] = []
    supervisor = Supervisor(cluster, topics, jobs, takeover_after, policies, apply)
    jobs += periodic_jobs(connection, lambda: supervisor.timelines, supervisor.claims)
    forgetting = ExpiredWriterJob(connection.config, forget_writers_after)
    jobs.append(forgetting)
    facts = {"topics": list(topics) or "all", "autoscale": _mode(policies, apply), "takeover_after_s": takeover_after}
    code = 0
    monitor = None if metrics_port is None else _monitored(connection, topics, metrics_host, metrics_port, interval)
    if monitor is not None:
        facts["metrics"] = f"http://{metrics_host}:{monitor.port}/metrics"
    with stopped_by_signals() as stop:
        _tell(Event("started", facts=facts), output)
        try:
            code = _turns(supervisor, stop, interval, once, output, monitor)
        except KeyorderError as error:
            if output != "json":
                raise
            # Whoever reads lines gets this one as a line too.
            _tell(Event("failed", facts=failure(error)), output)
            code = exit_code(error)
        finally:
            _end(supervisor, output)
            if not supervisor.at_work:  # else the process ends with what is under way
                forgetting.close()
                cluster.close()
            if monitor is not None:
                monitor.close()
    click.get_current_context().exit(code)


def _monitored(connection: Connection, topics: Sequence[str], host: str, port: int, interval: float) -> Monitor:
    try:
        from ..monitoring.monitor import Monitor
    except ModuleNotFoundError as error:
        raise ConfigError(
            "--metrics-port", f"{error.name} is not installed", "pip install 'keyorder[metrics]'"
        ) from error
    return Monitor(connection.config, topics, host, port, interval)


def _turns(
    supervisor: Supervisor, stop: threading.Event, interval: float, once: bool, output: str, monitor: Monitor | None
) -> int:
    """Turn after turn, until there is a reason to end. The exit code."""
    failed = refused = False
    while not stop.is_set():
        if monitor is not None:
            monitor.counts.turn(supervisor.running)
        events = supervisor.turn(clock.now())
        if monitor is not None:
            monitor.counts.turned(events, supervisor.refused)
        for event in events:
            _tell(event, output)
            failed = failed or event.event in ("failed", "unreachable", "unreadable")
            refused = refused or event.event == "refused"
        if once and (supervisor.settled or any(event.event == "unreachable" for event in events)):
            break
        stop.wait(interval)
    if not once:
        return 0
    return FAILED if failed else REFUSED if refused else 0


def periodic_jobs(connection: Connection, timelines: Callable[[], Mapping[str, Timeline]], claims: Claims) -> list[Job]:
    """What runs beside the changes. timelines: the topics to look after. claims: those that are worked at here."""
    return [DrainJob(connection.config, timelines, claims), FoldJob(connection.config, timelines, claims)]


def _end(supervisor: Supervisor, output: str) -> None:
    """Wait a while for changes and jobs under way: a change that is cut off holds records until somebody finishes it."""
    deadline = clock.now() + _GRACE
    pause = threading.Event()
    while supervisor.at_work and clock.now() < deadline:
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
    words = [clock.utc_now(), str(document.pop("event"))]
    if "topic" in document:
        words.append(str(document.pop("topic")))
    error = document.pop("error", None)
    if isinstance(error, dict):
        words.append(str(error["message"]))
    words += [
        f"{name.replace('_', ' ')}: {_told(value)}" for name, value in document.items() if value not in (None, [])
    ]
    click.echo("  ".join(words))


def _told(value: object) -> str:
    """A fact for people: a list without brackets, what was done in a partition as a sentence."""
    if isinstance(value, (list, tuple)):
        return ", ".join(_told(each) for each in value)
    if isinstance(value, dict) and "what" in value:  # a step of emptying retired partitions
        return f"{value['topic']}[{value['partition']}] {'' if value['done'] else 'waits for '}{value['what']}"
    return str(value)
