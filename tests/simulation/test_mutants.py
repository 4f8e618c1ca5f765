"""The simulation can fail: with one guard of the real code taken out, a history of the default thousand shows it."""

from __future__ import annotations

import pytest
from simulation.mutants import MUTANTS
from simulation.scenario import simulate

#: Where each was found first: looked at before all others, so that a run takes seconds.
FOUND_AT = {
    "ready_without_acknowledgements": 38,
    "moving_keys_are_not_held": 6,
    "a_record_overtakes_held_ones": 54,
    "a_timed_out_record_counts_as_gone": 107,
    "the_lease_is_not_checked": 9,
    "no_look_after_the_join": 1822,
    "a_join_with_records_on_the_way": 547,
    "records_go_out_until_the_lease_ends": 624,
    "a_failed_key_goes_on": 49,
    "records_before_the_prepare_are_not_waited_for": 38,
    "nobody_has_to_be_ready": 0,
    "writers_counted_by_an_old_look": 3205,
    "a_stale_ready_counts": 35,
    "expelled_before_the_lease_is_over": 3,
    "gates_are_open": 6,
    "gates_without_the_chain": 151,
    "the_oldest_gate_alone": 577,
    "gate_opened_by_what_was_read": 6,
    "starts_are_not_clipped": 123,
    "records_are_judged_by_any_view": 78,
    "all_is_processed_ahead": 808,
    "nothing_is_processed_ahead": 55,
    "records_go_out_before_the_join_is_read": 325,
    "a_look_counts_for_the_next_join": 154,
    "held_records_are_released_under_prepare": 29,
    "ready_waits_for_one_partition_alone": 50,
    "nobody_is_called": 0,
    "an_attempt_is_never_given_up": 0,
    "one_clock_tells_that_a_lease_is_over": 381,
    "the_last_record_is_left_out_of_a_cut": 0,
    "a_cut_lets_one_record_in": 1,
    "commits_at_once_and_no_second_look": 192,
    "a_gate_opens_one_record_early": 181,
    "a_gate_holds_one_record_late": 6,
    "a_partition_is_read_to_its_last_closed_gate": 28,
    "the_newest_gate_alone": 178,
    "a_shrink_has_no_gates": 181,
    "a_closed_gate_keeps_the_older_ones_closed": 55,
    "a_partition_without_a_commit_counts_as_read": 9,
    "positions_count_before_they_are_acknowledged": 965,
    "views_are_judged_by_age_alone": 78,
    "a_partition_is_given_up_without_a_commit": 3,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_removed_guard_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed at which the history is lost, reordered, stray or stuck."""
    MUTANTS[name](monkeypatch)
    seeds = [FOUND_AT.get(name, 0), *range(1000)]
    found = next((seed for seed in seeds if not simulate(seed).good), None)
    assert found is not None, f"{name}: {MUTANTS[name].__doc__} A thousand histories did not show it"
    print(f"{name}: found at seed {found}")
