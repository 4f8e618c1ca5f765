"""Our worker's answers beside those of Kafka Connect's own, recorded by `make connect-parity`."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path

import pytest
from keyorder.connector.connect.rest.process import WorkerProcess
from support.cluster import KafkaUnderTest
from support.connect_rest import Run, recorded
from support.connect_rest_rules import PAGE, judged, page
from support.connect_rig import await_leader, group_settings, until


@pytest.mark.timeout(600)
@pytest.mark.parametrize("asked", ["leader", "follower"])
def test_every_difference_is_one_that_the_docs_name(
    kafka: KafkaUnderTest, topic_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    """None beyond the rules, and no rule that nothing falls under any more; whichever worker is asked."""
    caplog.set_level(logging.INFO, "keyorder")
    settings = group_settings(kafka, topic_name) | {
        "plugin.classes": "",
        "access.control.allow.origin": "https://console.example",
        "access.control.allow.methods": "GET,PUT",
    }
    with WorkerProcess(settings, in_group=True) as worker, ExitStack() as more:
        await_leader(worker.url)
        if asked == "follower":
            both = worker, more.enter_context(WorkerProcess(settings, in_group=True))
            until(lambda: sum(each.operations.herder.leading for each in both) == 1, "one of them leads")
            worker = next(each for each in both if not each.operations.herder.leading)
            await_leader(worker.url)
        ours = Run(worker.url, kafka, tmp_path, f"{topic_name}-t").answers()
    theirs = recorded()
    assert list(theirs) == list(ours)
    uncovered, used = judged(theirs, ours)
    assert not uncovered, "\n".join(uncovered)
    assert [rule for rule, count in used.items() if not count] == []


def test_the_docs_list_them() -> None:
    """docs/connect-parity.md has the rules as a table."""
    assert page(PAGE.read_text("utf-8"), recorded()) == PAGE.read_text("utf-8")
