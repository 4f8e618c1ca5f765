"""What a campaign counts and chooses, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from faults import report, workloads
from faults.campaign import EVERY, PAGE, RECORD, Blow, Episode, Round, phases_struck, plan
from faults.change import PHASES, Step
from faults.cluster import FaultyCluster
from faults.nemesis import FAULTS, REQUESTS, Strike
from faults.proxy import Effect, Rule, Way

STEPS = [Step("preparing", 10.0), Step("collecting", 12.0), Step("hand-over", 20.0)]


def test_a_rule_counts_in_the_phases_in_which_it_touched_a_message() -> None:
    """That it was in force in others is no hit."""
    rule = Rule(Effect.CUT, Way.ANSWER)
    rule.hits += [9.0, 13.0, 19.0]

    assert phases_struck(STEPS, Strike("x", [rule]), 9.0, 30.0) == ["collecting"]


def test_a_fault_without_rules_counts_while_it_lasted() -> None:
    """A process that is dead in a phase was struck in it."""
    assert phases_struck(STEPS, Strike("x"), 10.5, 15.0) == ["preparing", "collecting"]
    assert phases_struck(STEPS, Strike("x"), 1.0, 9.0) == []


def test_a_rule_without_a_hit_counts_nowhere() -> None:
    """So a campaign that touched nothing has an empty table, and is invalid."""
    assert phases_struck(STEPS, Strike("x", [Rule(Effect.CUT, Way.ANSWER)]), 10.0, 30.0) == []


def test_what_was_struck_least_comes_first() -> None:
    """The same seed and record give the same plan, with every fault in every phase."""
    covered = {"a": dict.fromkeys(PHASES, 2), "b": {"preparing": 1}}
    chosen = plan(7, ["a", "b"], covered)

    assert sorted(chosen) == sorted((fault, phase) for fault in "ab" for phase in PHASES)
    assert {fault for fault, _ in chosen[: len(PHASES)]} == {"b"}
    assert chosen[len(PHASES) - 1] == ("b", "preparing")
    assert plan(7, ["a", "b"], covered) == chosen
    assert plan(8, ["a", "b"], covered) != chosen


def test_a_sweep_is_planned_by_the_phases_that_lack_a_round() -> None:
    """More than enough in one phase makes up for nothing in another."""
    covered = {"a": {"preparing": 50}, "b": dict.fromkeys(PHASES, 1), "c": dict.fromkeys(PHASES, 3)}

    assert plan(7, ["c", "b", "a"], covered, sweep=True) == [("a", EVERY), ("b", EVERY), ("c", EVERY)]


def test_each_request_has_its_faults() -> None:
    """A request that is to be held or to lose its answer is among the faults by its name."""
    assert {f"{how}-{name}" for how in ("hold", "lose") for name in REQUESTS} <= FAULTS.keys()


class Moving:
    """A client of a topic with one partition, whose leader has just begun to be that."""

    def __init__(self, _: object) -> None:
        self._answers = [KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)), (0, 7)]

    def list_topics(self, topic: str, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None})})

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        answer = self._answers.pop(0)
        if isinstance(answer, KafkaException):
            raise answer
        return answer

    def close(self) -> None: ...


def test_a_leader_that_does_not_know_its_partition_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at how far a group has come ends no episode."""
    monkeypatch.setattr(workloads, "Consumer", Moving)
    kafka = cast(FaultyCluster, SimpleNamespace(client_config=dict))

    assert workloads.ends(kafka, "t") == {0: 7}


def an_episode(wrong: str = "") -> Episode:
    """One round, in which a broker was dead in two phases."""
    steps = [Step("preparing", 10.0), Step("collecting", 12.0)]
    blows = [Blow("broker 1", 10.0, 15.0, 1)]
    done = Round("broker-kill", "preparing", 6, blows, 20.0, ["preparing", "collecting"], steps, 1)
    return Episode("plain", 1, [("broker-kill", "preparing")], [done], {"records": 5}, wrong, 8.0, 21.0)


def test_campaigns_add_up_in_the_record(tmp_path: Path) -> None:
    """Times struck, seconds and figures of each; an episode that went wrong keeps its seed, and has struck nothing."""
    from dataclasses import asdict

    path = tmp_path / "record.json"
    for episode in (an_episode(), an_episode("lost"), an_episode()):
        report.add(path, {"seed": 1, "episodes": [asdict(episode)]})
    record = report.load(path)

    assert report.coverage(record) == {"broker-kill": {"preparing": 2, "collecting": 2}}
    assert [run["wrong"] for run in record["runs"]] == [[], [1], []]
    assert [run["seconds"] for run in record["runs"]] == [13, 13, 13]
    assert "| `broker-kill` |  |  | 2 | 2 |  |  |  |" in report.table(report.coverage(record), ["broker-kill"])


@pytest.mark.slow
def test_a_report_shows_what_went_wrong(tmp_path: Path) -> None:
    """With its time line, and its text escaped."""
    from dataclasses import asdict

    report.write({"seed": 1, "episodes": [asdict(an_episode("<lost>"))]}, tmp_path)
    page = (tmp_path / "report.html").read_text()

    assert "&lt;lost&gt;" in page
    assert "<svg" in page
    assert (
        json.loads((tmp_path / "report.json").read_text())["episodes"][0]["rounds"][0]["blows"][0]["target"]
        == "broker 1"
    )


def test_the_page_shows_the_record() -> None:
    """Its totals and its table are those of the kept runs, with every fault that there is."""
    assert report.totals(report.load(RECORD), list(FAULTS)) in PAGE.read_text()
    assert [
        name for name in FAULTS if not name.startswith(("hold-", "lose-")) and f"`{name}`" not in PAGE.read_text()
    ] == []


def test_the_record_knows_only_faults_and_phases_that_there_are() -> None:
    """A fault that was renamed would start from nothing."""
    covered = report.coverage(report.load(RECORD))

    assert covered.keys() <= FAULTS.keys()
    assert {phase for phases in covered.values() for phase in phases} <= set(PHASES)
