"""Commits on their way, against a list that is searched from the front."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.consuming.commits_in_flight import CommitsInFlight

OWNERS = st.sampled_from(["before", "now"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sent"), st.integers(0, 1), st.integers(0, 3), OWNERS),
        st.tuples(st.just("answered"), st.integers(0, 1), st.integers(-1, 3), OWNERS),
        st.tuples(st.just("settled"), st.integers(0, 1), st.just(0), OWNERS),
    ),
    max_size=40,
)


@given(STEPS)
def test_it_agrees_with_a_list_that_is_searched(steps: list[tuple[str, int, int, str]]) -> None:
    """An answer is of the first commit with its offset, and ends all before it; settled ones are known and tell nothing."""
    commits: CommitsInFlight[str] = CommitsInFlight()
    listed: list[tuple[int, int, str | None]] = []
    for what, partition, offset, owner in steps:
        place = TopicPartition("t", partition, offset)
        if what == "sent":
            commits.add(owner, place)
            listed.append((partition, offset, owner))
        elif what == "settled":
            commits.settle(("t", partition))
            listed = [(p, at, None if p == partition else who) for p, at, who in listed]
        else:
            of_it = [each for each in listed if each[0] == partition]
            hit = next((n for n, each in enumerate(of_it) if each[1] == offset and offset >= 0), None)
            expected = None if hit is None else of_it[hit][2]
            answered = commits.answered(place)
            assert (None if answered is None else (answered[0], answered[1].offset)) == (
                None if expected is None else (expected, offset)
            )
            if hit is not None:
                rest = of_it[hit + 1 :]
                listed = [each for each in listed if each[0] != partition] + rest
        for p in (0, 1):
            newest = next((each for each in reversed(listed) if each[0] == p), None)
            for who in ("before", "now"):
                last = commits.last(("t", p), who)
                mine = newest is not None and newest[2] == who
                assert (last is not None) == mine
                assert not mine or (last is not None and newest is not None and last.offset == newest[1])
        assert set(commits.places()) == {("t", each[0]) for each in listed}
