"""`keyorder topics plan|expand|shrink`: what a change would do, and the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import click

from ....partitioner.epochs import Retirement
from ....partitioner.errors import CountError, StockWritersError
from ....partitioner.timeline import Timeline
from ...admin import TopicAdmin
from ...control.timeline_edit import ChangeOpenError
from ...operations.forecast import ChangeForecast, ForcedDrain
from ...operations.notices import Code, Notice, of_change
from ...topology.draining import require_switch
from ..connecting import Connection, connection_options
from ..main import REFUSED
from ..output import echo_wrapped, emit_json, output_option
from ..seconds import Seconds
from ..topics_output import change_document, show_change, show_notices, steps_shown
from ..topics_release import under_management
from .confirming import confirm
from .plan_output import forced_document, plan_document, show_plan

# More than any cluster has partitions: which keys move is told for each of them.
_COUNT = click.IntRange(min=1, max=100_000)
_topic_option = click.option("--topic", required=True, help="The topic's name.")
_dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen and change nothing.")
_groups_option = click.option(
    "--group",
    "groups",
    multiple=True,
    help="A group whose backlog is shown; repeatable. [default: all that read the topic]",
)
_sample_option = click.option(
    "--sample",
    type=Seconds(0),
    default=0.0,
    metavar="SECONDS",
    help="Measure the pace of groups and producers over so many seconds.",
)
_wait_option = click.option(
    "--wait-for-groups", "waited", default="", help="Comma-separated groups that have to read what a shrink retires."
)
_delay_option = click.option(
    "--delete-partitions-delay",
    "delay_ms",
    type=click.IntRange(min=0),
    default=None,
    metavar="MS",
    help="How long retired partitions stay readable, 0 for not at all. [default: the topic's setting]",
)
_accept_option = click.option(
    "--accept-stock-writers",
    "accepted",
    is_flag=True,
    help="Make the change although producers without keyorder seem to write the topic: its keys may get out of order.",
)


@click.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="How many partitions the topic would have.")
@_groups_option
@_sample_option
@_wait_option
@_delay_option
@output_option
@connection_options(timeout=30)
def plan(
    connection: Connection,
    topic: str,
    partitions: int,
    groups: Sequence[str],
    sample: float,
    waited: str,
    delay_ms: int | None,
    output: str,
) -> None:
    """Say what a change would do, and change nothing.

    Which keys move from where to where, what each group has to read first, how long that may take, and what to know
    before. A time that was not measured is unknown: --sample looks twice.
    """
    connection.reach()
    _show_plan(connection, topic, partitions, groups, sample, output, Retirement(False, _names(waited), delay_ms))


@click.command()
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="The new number of partitions.")
@_accept_option
@_groups_option
@_sample_option
@_dry_run_option
@output_option
@connection_options(timeout=120)
def expand(
    connection: Connection,
    topic: str,
    partitions: int,
    accepted: bool,
    groups: Sequence[str],
    sample: float,
    dry_run: bool,
    output: str,
) -> None:
    """Grow a topic while it is written and read. The same command again resumes a change that was cut off.

    A change that does not get through within --timeout is given up; the layout is then as it was before. A topic that a
    producer without keyorder seems to write is refused (exit code 3), by a dry run too. --group and --sample go with
    --dry-run.
    """
    _only_planned(groups, sample, dry_run)
    connection.reach()
    with TopicAdmin(connection.config) as admin:
        timeline = under_management(admin, topic)
    if partitions < timeline.layout.count:
        raise CountError(topic, timeline.layout.count, partitions, "expand only grows")
    _require_no_other_change(timeline, partitions)
    if dry_run:
        planned = _show_plan(connection, topic, partitions, groups, sample, output, Retirement())
        _as_the_change_ends(timeline, planned, accepted)
        return
    warnings = _warned(connection, timeline, partitions, Retirement(), accepted)
    with steps_shown(topic, partitions) as progress, TopicAdmin(connection.config, progress) as admin:
        change = admin.expand(topic, partitions, connection.timeout)
        change = replace(change, warnings=warnings or change.warnings)
    if output == "json":
        emit_json(change_document(change))
    else:
        show_change(change)


@click.command(short_help="Retire partitions while the topic is written and read.")
@_topic_option
@click.option("--partitions", type=_COUNT, required=True, help="The number of partitions that stay active.")
@click.option(
    "--immediate", is_flag=True, help="Empty the retired partitions without the delay (groups are waited for)."
)
@_wait_option
@_delay_option
@click.option("--force", is_flag=True, help="Do not wait for groups either. What they have not read is lost.")
@click.option("--confirm", "confirmation", default=None, metavar="TOPIC", help="The topic's name again, for --force.")
@_accept_option
@_groups_option
@_sample_option
@_dry_run_option
@output_option
@connection_options(timeout=120)
def shrink(
    connection: Connection,
    topic: str,
    partitions: int,
    immediate: bool,
    waited: str,
    delay_ms: int | None,
    force: bool,
    confirmation: str | None,
    accepted: bool,
    groups: Sequence[str],
    sample: float,
    dry_run: bool,
    output: str,
) -> None:
    """Retire partitions while the topic is written and read, down to its initial count at the lowest.

    A retired partition is read to its end and then kept empty: a stock cluster cannot remove it, a later growth uses it
    again. The same command again resumes a change that was cut off. --immediate, --delete-partitions-delay and --force also
    apply to what was retired before and is not emptied yet. A topic that a producer without keyorder seems to write is
    refused (exit code 3), by a dry run too. --group and --sample go with --dry-run.
    """
    if confirmation is not None and not force:
        raise click.UsageError("--confirm goes with --force.")
    _only_planned(groups, sample, dry_run)
    connection.reach()
    retirement = Retirement(immediate, _names(waited), delay_ms, force)
    with TopicAdmin(connection.config) as admin:
        timeline = under_management(admin, topic)
        layout = timeline.layout
        if partitions > layout.count:
            raise CountError(topic, layout.count, partitions, "shrink only retires")
        if partitions < layout.initial:
            raise CountError(topic, layout.count, partitions, f"it cannot go below its initial {layout.initial}")
        if retirement.asked_for:
            require_switch(timeline)
        _require_no_other_change(timeline, partitions)
        lost = admin.forced_drain(topic, partitions) if force else None
    if dry_run:
        planned = _show_plan(connection, topic, partitions, groups, sample, output, retirement, lost)
        _as_the_change_ends(timeline, planned, accepted)
        return
    warnings = _warned(connection, timeline, partitions, retirement, accepted)
    if lost is not None:
        confirm(topic, confirmation, lost.lines())
    with steps_shown(topic, partitions) as progress, TopicAdmin(connection.config, progress) as admin:
        change = admin.shrink(topic, partitions, immediate, retirement.groups, connection.timeout, delay_ms, force)
        if warnings:
            change = replace(change, warnings=warnings)
        else:  # the layout stays, so nobody has planned
            show_notices([notice for notice in change.warnings if notice.code in (Code.SWITCH_OFF, Code.COMPACTED)])
        drained = admin.drain(topic) if retirement.asked_for else []
    if output == "json":
        steps = [{**asdict(step), "state": step.state.value} for step in drained]
        emit_json({**change_document(change), "drained": steps})
    else:
        show_change(change)
        for step in drained:
            echo_wrapped(f"Partition {step.partition}: {step.what if step.done else 'waits for ' + step.what}")


def _require_no_other_change(timeline: Timeline, partitions: int) -> None:
    """Stop before anything is planned, or anybody asked, while the topic goes to another count. Raises ChangeOpenError.

    A change that re-homes values is no obstacle: the new one takes its place.
    """
    change = timeline.change
    if change is not None and change.slice is None and change.count != partitions:
        raise ChangeOpenError(timeline.topic, change)


def _show_plan(
    connection: Connection,
    topic: str,
    partitions: int,
    groups: Sequence[str],
    sample: float,
    output: str,
    wishes: Retirement,
    lost: ForcedDrain | None = None,
) -> ChangeForecast:
    with TopicAdmin(connection.config) as admin:
        found = admin.plan(
            topic, partitions, groups or None, wishes.groups, wishes.immediate, wishes.delay_ms, sample, wishes.forced
        )
    if output == "json":
        emit_json({**plan_document(found), "forced": None if lost is None else forced_document(lost)})
        return found
    show_plan(found)
    for line in [] if lost is None else lost.lines():
        echo_wrapped(line)
    return found


def _warned(
    connection: Connection, timeline: Timeline, partitions: int, wishes: Retirement, accepted: bool
) -> tuple[Notice, ...]:
    """What `topics plan` warns of, shown; nothing where the count stays, which takes no plan.

    Raises StockWritersError where stock producers were seen and are not accepted. A change that is open is not stopped:
    its partitions may be there already.
    """
    if partitions == timeline.newest.count:
        show_notices(of_change(timeline, partitions))
        return ()
    with TopicAdmin(connection.config) as admin:
        planned = admin.plan(
            timeline.topic, partitions, None, wishes.groups, wishes.immediate, wishes.delay_ms, 0.0, wishes.forced
        )
    show_notices(planned.warnings)
    if refusal := _refusal(timeline, planned, accepted):
        raise refusal
    return planned.warnings


def _refusal(timeline: Timeline, planned: ChangeForecast, accepted: bool) -> StockWritersError | None:
    if planned.stock.seen and not accepted and timeline.change is None:
        return StockWritersError(timeline.topic, planned.stock.seen)
    return None


def _as_the_change_ends(timeline: Timeline, planned: ChangeForecast, accepted: bool) -> None:
    """The exit code of a dry run, behind its plan: a script asks it whether the change would be made."""
    if refusal := _refusal(timeline, planned, accepted):
        echo_wrapped(f"Would be refused: {refusal}", err=True)
        click.get_current_context().exit(REFUSED)


def _only_planned(groups: Sequence[str], sample: float, dry_run: bool) -> None:
    """Who gives a flag of a plan may think that nothing is changed: refuse it without --dry-run."""
    given = [flag for flag, value in (("--group", groups), ("--sample", sample)) if value]
    if given and not dry_run:
        raise click.UsageError(f"{' and '.join(given)}: for a dry run only. Add --dry-run, or make the change without.")


def _names(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())
