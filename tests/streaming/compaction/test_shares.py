"""Which task has which keys, and which partitions it reads: without a broker and without Spark."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.partitioner.epochs import Epoch
from keyorder.partitioner.errors import ConfigError
from keyorder.partitioner.layout import Layout
from keyorder.partitioner.routing import Routing
from keyorder.partitioner.timeline import Timeline
from keyorder.streaming.source.compacting import Share, dealt, homes_over, read_for, shares
from keyorder.streaming.source.options import source_options

BASE = {"kafka.bootstrap.servers": "h:9", "subscribe": "t"}
KEYS = [b"key-%d" % n for n in range(200)]


def timeline(initial: int, counts: list[int]) -> Timeline:
    """A history of these partition counts; the cuts do not matter here."""
    epochs = [Epoch(0, counts[0])]
    for number, (before, after) in enumerate(pairwise(counts), 1):
        moved = list(Layout(initial, before).moves_to(Layout(initial, after)))
        ends, begins = {q: 10 * number for q, _ in moved}, {p: 10 * number for _, p in moved}
        epochs.append(Epoch(number, after, ends, begins))
    return Timeline("t", "id", "", initial, tuple(epochs))


COUNTS = st.integers(1, 3).flatmap(
    lambda initial: st.tuples(st.just(initial), st.lists(st.integers(initial, 9), min_size=1, max_size=5))
)


def changed(initial: int, counts: list[int]) -> list[int]:
    """Without changes to the same count; the first is the initial one."""
    found = [initial]
    for count in counts:
        if count != found[-1]:
            found.append(count)
    return found


@given(COUNTS, st.integers(0, 4), st.integers(0, 50))
def test_each_key_is_in_one_task_which_reads_all_its_homes(
    history: tuple[int, list[int]], known: int, small: int
) -> None:
    """Whatever has changed since the query was planned; and every partition is looked at as a whole by some task."""
    initial, counts = history[0], changed(*history)
    planned, now = timeline(initial, counts[: 1 + known]), timeline(initial, counts)
    layout, there = planned.layout, range(max(counts) + 1)
    sizes = dict.fromkeys(there, 10)
    before = homes_over(layout, Routing(planned))
    assert before is not None
    found = shares("t", layout, before, sizes, small)
    routing = Routing(now)
    lived = homes_over(layout, routing)
    for key in KEYS:
        (mine,) = [share for share in found if layout.home(key) in (share.homes or ())]
        route = routing.of(key)
        assert {route.home, *(move.origin for move in route.moves)} <= read_for(mine, lived, there)
    assert set().union(*(read_for(share, lived, there) for share in found)) == set(there)


@given(st.integers(1, 6), st.integers(1, 12))
def test_a_topic_without_a_timeline_may_place_all_keys_anew(before: int, now: int) -> None:
    """Stock producers go by `hash % count`: after a stock growth a key's home may be anywhere."""
    layout, after = Layout(before, before), timeline(max(before, now), [max(before, now)])
    lived = homes_over(layout, Routing(after))
    for key in KEYS:
        assert lived is not None
        assert after.layout.home(key) in lived[layout.home(key)]


def test_another_hash_is_no_basis() -> None:
    """Adopted under another hash since: nothing follows from the homes of planning, so each task reads everything."""
    adopted = Timeline("t", "id", "", 4, (Epoch(0, 4),), hash="crc32")
    assert homes_over(Layout(4, 4), Routing(adopted)) is None
    assert read_for(Share("t", Layout(4, 4), frozenset({1})), None, range(5)) == set(range(5))


def test_tasks_that_read_everything_deal_the_homes_out() -> None:
    """As many as asked for, or as there are homes."""
    assert [share.homes for share in dealt("t", Layout(2, 5), 2)] == [frozenset({0, 2, 4}), frozenset({1, 3})]
    assert len(dealt("t", Layout(2, 5), 50)) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compaction.strategy": "newest"}, "compaction.strategy: 'newest' is no strategy"),
        ({"compaction.strategy.header": "v"}, "compaction.strategy=header"),
        ({"compaction.strategy": "offset", "compaction.strategy.header": "v"}, "compaction.strategy=header"),
        ({"keyorder.compact": "yes"}, "use topic or false"),
        ({"keyorder.compact": "topic", "compaction.strategy": "offset"}, "two strategies"),
        ({"keyorder.compact": "topic", "keyorder.compact.read": "some"}, "use homes or all"),
        ({"compaction.stratgy": "offset"}, "did you mean compaction.strategy?"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, str], words: str) -> None:
    """With the name of the option."""
    with pytest.raises(ConfigError) as raised:
        source_options({**BASE, **options}, streaming=False)
    assert words in str(raised.value)


def test_options_of_compaction(caplog: pytest.LogCaptureFixture) -> None:
    """Committed values alone, all homes of a key, and no stream: that takes state."""
    assert source_options(BASE, streaming=False).compaction is None
    found = source_options({**BASE, "compaction.strategy": "header", "compaction.strategy.header": "v"}, False)
    assert found.compaction is not None
    assert found.compaction.strategy is not None
    assert (found.compaction.strategy.header, found.client["isolation.level"]) == ("v", "read_committed")
    given = {**BASE, "keyorder.compact": "topic", "kafka.isolation.level": "read_uncommitted", "minPartitions": "4"}
    by_topic = source_options(given, streaming=False)
    assert by_topic.compaction is not None
    assert by_topic.compaction.strategy is None
    assert by_topic.client["isolation.level"] == "read_uncommitted"
    assert by_topic.min_partitions is None
    assert "minPartitions" in caplog.text
    assert source_options({**given, "keyorder.compact.read": "all"}, streaming=False).min_partitions == 4
    with pytest.raises(ConfigError, match=r"compact\(spark, config, topic, streaming=True\)"):
        source_options({**BASE, "keyorder.compact": "topic"}, streaming=True)
    with pytest.raises(ConfigError, match="assign"):
        source_options({"kafka.bootstrap.servers": "h", "assign": '{"t":[0]}', "keyorder.compact": "topic"}, False)
