"""What the checker calls legal, observed, trimmed or compacted, on histories written by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyorder.connector.verify.events import Kind, Value
from keyorder.connector.verify.history import History
from keyorder.connector.verify.topology import Epoch, Topology, hash31, locate
from keyorder.connector.verify.verdict import Verdict, judge
from keyorder.partitioner.hashing import key_hash
from keyorder.partitioner.layout import Layout
from support.histories import Case, Ev, Rec

OK, START, END = Kind.SEND_OK, Kind.DELIVER_START, Kind.DELIVER_END


class Script:
    """Writes a case event by event; every value is sent by w under the key k unless said otherwise."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.case = Case(0, topology or Topology(1, [Epoch(0, 1)]))

    def sent(self, seq: int, partition: int = 0, offset: int | None = None, *, key: str = "k") -> Rec:
        """A record is sent, acknowledged and in the log."""
        rec = Rec(partition, seq - 1 if offset is None else offset, Value("r", "w", key, seq), None, key != "")
        self.case.events.append(Ev(Kind.SEND_INVOKE, "w", value=rec.value))
        self.case.events.append(Ev(OK, "w", "", rec.partition, rec.offset, rec.value))
        self.case.log.append(rec)
        return rec

    def on(self, kind: Kind, actor: str, partition: int = 0, offset: int = -1) -> Script:
        """One event of a consumer of group g, or a crash."""
        self.case.events.append(Ev(kind, actor, "" if kind is Kind.CRASH else "g", partition, offset))
        return self

    def starts(self, actor: str, rec: Rec) -> Script:
        self.case.events.append(Ev(START, actor, "g", rec.partition, rec.offset, rec.value))
        return self

    def ends(self, actor: str, rec: Rec) -> Script:
        self.case.events.append(Ev(END, actor, "g", rec.partition, rec.offset, rec.value))
        return self

    def gets(self, actor: str, *recs: Rec) -> Script:
        for rec in recs:
            self.starts(actor, rec).ends(actor, rec)
        return self

    def judge(self, **options: object) -> Verdict:
        return self.case.judge(**options)


@given(st.binary(max_size=20), st.integers(1, 9), st.integers(0, 60))
def test_the_second_routing_agrees_with_the_product(key: bytes, initial: int, more: int) -> None:
    """Counting partitions up one by one gives the home that the product computes in closed form."""
    count = initial + more
    topology = Topology(initial, [Epoch(0, count)])
    assert hash31(key) == key_hash(key)
    assert topology.home(key, count) == Layout(initial=initial, count=count).home(key)


def test_equal_cuts_belong_to_the_newest_segment() -> None:
    """A key that left and came back while nothing was written is in its newest stay."""
    epochs = [Epoch(0, 1), Epoch(1, 2, {0: 5}, {1: 0}), Epoch(3, 1, {1: 0}, {0: 5})]
    topology = Topology(1, epochs)
    key = next(k for k in map(str, range(99)) if hash31(k.encode()) % 2 == 1).encode()
    chain = topology.chain(key)
    assert [(s.epoch, s.home, s.lower, s.upper) for s in chain] == [(0, 0, 0, 5), (1, 1, 0, 0), (3, 0, 5, None)]
    assert (locate(chain, 0, 4), locate(chain, 0, 5), locate(chain, 1, 0)) == (0, 2, None)
    assert [topology.home_in(key, epoch) for epoch in range(4)] == [0, 1, 1, 0]


def test_a_topology_without_the_cuts_it_needs_is_refused() -> None:
    """Falling epochs, counts below the initial one, and moves without cuts are ValueErrors."""
    for initial, epochs in ((1, []), (1, [Epoch(1, 1), Epoch(1, 2)]), (2, [Epoch(0, 1)])):
        with pytest.raises(ValueError):
            Topology(initial, epochs)
    topology = Topology(1, [Epoch(0, 1), Epoch(1, 2)])
    moving = next(key for key in map(str, range(99)) if topology.home(key.encode(), 2) == 1)
    with pytest.raises(ValueError, match="without cuts"):
        topology.chain(moving.encode())


@pytest.mark.parametrize("how", [Kind.CRASH, Kind.LOST, None])
def test_replays_of_an_unclean_end_are_legal_duplicates(how: Kind | None) -> None:
    """After a crash, a loss or an expiry, what was not committed may come again, in its order."""
    s = Script()
    a, b, c = (s.sent(n) for n in (1, 2, 3))
    s.on(Kind.ASSIGN, "c1").gets("c1", a).on(Kind.COMMIT_OK, "c1", 0, 1).gets("c1", b)
    if how is not None:
        s.on(how, "c1")
    s.on(Kind.ASSIGN, "c2").gets("c2", b, c)
    verdict = s.judge()
    assert verdict.valid, verdict.summary()
    assert verdict.groups["g"].legal_duplicates == 1
    assert s.judge(mode="exactly-once").counts == {"A10": 1}


@pytest.mark.parametrize("told_late", [False, True])
def test_a_revoke_with_a_refused_commit_is_excused_where_that_is_asked_for(told_late: bool) -> None:
    """Whether the refusal is told before the revoke or after it. A commit that succeeds after it ends the excuse."""
    s = Script()
    a, b, c = (s.sent(n) for n in (1, 2, 3))
    s.on(Kind.ASSIGN, "c1").gets("c1", a).on(Kind.COMMIT_OK, "c1", 0, 1).gets("c1", b)
    ends = [Kind.REVOKE, Kind.COMMIT_UNKNOWN] if told_late else [Kind.COMMIT_UNKNOWN, Kind.REVOKE]
    for kind in ends:
        s.on(kind, "c1", 0, 2)
    s.on(Kind.ASSIGN, "c2").gets("c2", b, c)
    assert s.judge().counts == {"A10": 1}
    excused = s.judge(refusals_excuse=True)
    assert excused.valid, excused.summary()
    assert excused.groups["g"].legal_duplicates == 1
    assert s.judge(refusals_excuse=True, mode="exactly-once").counts == {"A10": 1}

    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", a, b).on(Kind.COMMIT_UNKNOWN, "c1", 0, 2).on(Kind.COMMIT_OK, "c1", 0, 1)
    s.on(Kind.REVOKE, "c1").on(Kind.ASSIGN, "c2").gets("c2", b)
    assert s.judge(refusals_excuse=True).counts == {"A10": 1}


@pytest.mark.parametrize("when", ["none", "before", "between", "behind", "another writer's"])
def test_a_batch_written_again_is_observed_where_a_new_producer_epoch_explains_it(when: str) -> None:
    """Only what was on its way when its own writer's client library began the epoch; anything else is an illegal duplicate."""
    s = Script()

    def epoch(at: str) -> None:
        if when == at:
            s.case.events.append(Ev(Kind.NEW_EPOCH, "w"))

    epoch("before")
    recs = [Rec(0, offset, Value("r", "w", "k", seq), None, True) for offset, seq in ((0, 1), (1, 2))]
    s.case.events += [Ev(Kind.SEND_INVOKE, "w", value=rec.value) for rec in recs]
    epoch("between")
    if when == "another writer's":
        s.case.events.append(Ev(Kind.NEW_EPOCH, "v"))
    s.case.events += [Ev(OK, "w", "", 0, rec.offset + 2, rec.value) for rec in recs]
    epoch("behind")
    again = [Rec(0, rec.offset + 2, rec.value, None, True) for rec in recs]
    s.case.log += recs + again
    s.on(Kind.ASSIGN, "c1").gets("c1", *recs, *again)

    verdict = s.judge()

    assert verdict.valid is (when == "between"), verdict.summary()
    assert verdict.counts == ({"R6'": 2} if when == "between" else {"R6": 2, "A5": 1})
    assert verdict.illegal_duplicates == (0 if when == "between" else 2)


def test_a_replay_that_skips_is_a_skip() -> None:
    """The records delivered again are contiguous: one left out between two others is A6."""
    s = Script()
    a, b, c = (s.sent(n) for n in (1, 2, 3))
    s.on(Kind.ASSIGN, "c1").gets("c1", a, b, c).on(Kind.CRASH, "c1")
    s.on(Kind.ASSIGN, "c2").gets("c2", a, c)
    assert s.judge().counts == {"A6": 1}


def test_a_clean_revoke_excuses_no_duplicate() -> None:
    """Also when its commit failed, what was done before a revoke must not come again."""
    s = Script()
    a = s.sent(1)
    s.on(Kind.ASSIGN, "c1").gets("c1", a).on(Kind.COMMIT_FAIL, "c1", 0, 1).on(Kind.REVOKE, "c1")
    s.on(Kind.ASSIGN, "c2").gets("c2", a)
    assert s.judge().counts == {"A10": 1}


def test_a_consumer_that_is_opened_again_has_crashed() -> None:
    """A new life of the same actor ends the periods of the life before."""
    s = Script()
    a = s.sent(1)
    s.on(Kind.OPEN, "c1").on(Kind.ASSIGN, "c1").gets("c1", a).on(Kind.OPEN, "c1").on(Kind.ASSIGN, "c1")
    assert s.gets("c1", a).judge().groups["g"].legal_duplicates == 1


def test_a_declared_seek_is_no_fault_and_a_forward_one_excuses_nothing_behind_it() -> None:
    """After a seek back the records come again legally; a seek to the end does not excuse old ones."""
    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", a, b).on(Kind.SEEK, "c1", 0, 0).gets("c1", a, b)
    verdict = s.judge()
    assert verdict.valid, verdict.summary()
    assert verdict.groups["g"].sought_duplicates == 2
    s.on(Kind.SEEK, "c1", 0, 2).gets("c1", a)
    assert set(s.judge().counts) == {"A5", "A10", "A13"}


def test_a_zombie_inside_the_application_is_observed_and_not_judged() -> None:
    """The overlap with an owner that had been given up is A7z; the same with a living owner is A7."""
    for given_up in (True, False):
        s = Script()
        a, b = s.sent(1), s.sent(2)
        s.on(Kind.ASSIGN, "c1").starts("c1", a)
        if given_up:
            s.on(Kind.ASSIGN, "c2").gets("c2", a).starts("c2", b).ends("c1", a).ends("c2", b)
        else:
            s.starts("c2", b).ends("c1", a).ends("c2", b)
        verdict = s.judge()
        assert verdict.counts.get("A7z", 0) == given_up
        assert verdict.counts.get("A7", 0) == (not given_up)
        assert verdict.groups["g"].zombie_overlaps == given_up


def test_a_commit_by_a_replaced_member_is_observed() -> None:
    """A9' is counted and does not decide; the verdict stays valid when nothing is overrun."""
    s = Script()
    a = s.sent(1)
    s.on(Kind.ASSIGN, "c1").gets("c1", a).on(Kind.ASSIGN, "c2").on(Kind.COMMIT_OK, "c1", 0, 1)
    verdict = s.judge()
    assert verdict.counts == {"A9'": 1}
    assert verdict.valid


def test_a_batch_reads_in_its_own_order() -> None:
    """Deliveries of one clock reading keep the order in which they were recorded."""
    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").starts("c1", b).starts("c1", a).ends("c1", b).ends("c1", a)
    history = History()
    for t, e in enumerate(s.case.events):
        history.add(min(t, 5), e.kind, e.actor, e.group, e.partition, e.offset, e.value)
    verdict = judge(history.finish(), s.case.rows(), s.case.topology)
    assert set(verdict.counts) == {"A4", "A4w", "A5", "A13"}


def test_records_of_an_emptied_partition_count_as_read() -> None:
    """Below the log start, acknowledged records are neither lost nor free to be skipped."""
    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", a)
    s.case.log.clear()
    assert s.judge().counts["R8"] == 2
    assert s.judge(log_starts={0: 2}).counts == {"A1'": 1}
    assert s.gets("c1", b).judge(log_starts={0: 2}).valid


def test_a_compacted_record_counts_as_present_while_a_newer_one_of_its_key_is() -> None:
    """Its loss from the log is none, and nobody has to get it; the newest record is owed as ever."""
    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", b)
    s.case.log.remove(a)
    assert set(s.judge().counts) == {"R8"}
    assert s.judge(compacted=True).valid
    s.case.log.remove(b)
    assert s.judge(compacted=True).counts["R8"] == 2


def test_a_group_owes_nothing_below_its_first_offset() -> None:
    """A group that began at the latest offset is not asked for what lay below."""
    s = Script()
    s.sent(1)
    b = s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", b).on(Kind.COMMIT_OK, "c1", 0, 2)
    assert set(s.judge().counts) == {"A1", "A1'", "A9"}
    assert s.judge(starts={"g": {0: 1}}).valid


def test_records_without_a_key_have_no_order_but_must_arrive() -> None:
    """Null-key records may come in any order; a missing one is lost."""
    s = Script()
    a, b = s.sent(1, key=""), s.sent(2, key="")
    s.on(Kind.ASSIGN, "c1").gets("c1", b)
    assert s.judge().counts == {"A1'": 1}
    assert s.gets("c1", a).judge().valid


def test_records_without_a_key_have_no_order_where_the_log_was_emptied_either() -> None:
    """Their key "" tells it when the log no longer can."""
    s = Script()
    a, b = s.sent(1, key=""), s.sent(2, key="")
    s.on(Kind.ASSIGN, "c1").gets("c1", b, a)
    s.case.log.clear()
    assert s.judge(log_starts={0: 2}).valid


def test_before_quiescence_the_tail_is_not_owed() -> None:
    """Without a final drain only what was passed by counts as lost."""
    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", a)
    assert s.judge(quiesced=False).valid
    assert s.judge().counts == {"A1'": 1}
    del b


def test_the_stock_twin_reports_reordered_keys_by_the_writers_order() -> None:
    """Where nobody knows the homes, a key is reordered when a writer's later record came first."""
    s = Script()
    a, b, c = s.sent(1, 0, 0), s.sent(2, 1, 0), s.sent(1, 0, 1, key="other")
    s.on(Kind.ASSIGN, "c1").on(Kind.ASSIGN, "c2", 1).gets("c2", b).gets("c1", a, c)
    verdict = s.case.judge_stock()
    assert (verdict.valid, verdict.reordered_keys, verdict.lost, verdict.illegal_duplicates) == (False, 1, 0, 0)
    assert verdict.counts == {"A4w": 1}
    s.case.log.append(Rec(2, 0, Value("r", "w", "k", 3), None))
    s.case.events.insert(0, Ev(Kind.SEND_INVOKE, "w", value=Value("r", "w", "k", 3)))
    assert s.case.judge_stock().lost == 1


def test_the_verdict_speaks_and_is_json() -> None:
    """The summary names figures, counts and examples; the dictionary goes through JSON."""
    s = Script()
    a, b = s.sent(1), s.sent(2)
    s.on(Kind.ASSIGN, "c1").gets("c1", b, a)
    verdict = s.judge()
    summary = verdict.summary()
    for words in ("INVALID", "2 records of 1 keys", "1 reordered keys", "A4: 1", "w#1 came after w#2"):
        assert words in summary
    data = json.loads(json.dumps(verdict.as_dict()))
    assert (data["valid"], data["groups"]["g"]["reordered_keys"], data["counts"]["A4"]) == (False, 1, 1)
    with pytest.raises(ValueError, match="mode"):
        s.judge(mode="maybe")


def test_a_thousandfold_anomaly_is_counted_in_full_and_kept_in_part() -> None:
    """Counts are exact; only the first thousand of each id keep their details."""
    s = Script()
    recs = [s.sent(n) for n in range(1, 1_502)]
    s.on(Kind.ASSIGN, "c1").gets("c1", *reversed(recs))
    verdict = s.judge()
    assert verdict.counts["A4"] == 1_500
    assert sum(a.id == "A4" for a in verdict.anomalies) == 1_000


def _rehomed(copy_at: int, *, gone: bool = False, copy_of: int = 1) -> tuple[Script, Rec, Rec, Rec]:
    """x at partition 1, its copy at home, and y written there at 4. The script, x, the copy and y."""
    epochs = [Epoch(0, 1), Epoch(1, 2, {0: 0}, {1: 0}), Epoch(2, 1, {1: 1}, {0: 2})]
    key = next(k for k in map(str, range(99)) if hash31(k.encode()) % 2 == 1)
    s = Script(Topology(1, epochs))
    x, y = s.sent(1, 1, 0, key=key), s.sent(2, 0, 4, key=key)
    copy = Rec(0, copy_at, Value("r", "w", key, copy_of), None)
    s.case.log.append(copy)
    if gone:
        s.case.log.remove(x)
    s.case.options["copies"] = {(0, copy_at): (1, 0)}
    s.on(Kind.ASSIGN, "c1", 0).on(Kind.ASSIGN, "c1", 1)
    return s, x, copy, y


@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_is_its_original_at_another_place(gone: bool) -> None:
    """It may be delivered besides the original, or in its place where the cleaner has taken that; never behind a newer one."""
    s, x, copy, y = _rehomed(3, gone=gone)
    before = () if gone else (x,)
    verdict = s.gets("c1", *before, copy, y).judge()
    assert verdict.valid, verdict.summary()
    assert (verdict.lost, verdict.illegal_duplicates) == (0, 0)

    s, x, copy, y = _rehomed(3, gone=gone)
    assert s.gets("c1", *before, y, copy).judge().counts.keys() >= {"A5", "A13"}

    s, x, copy, y = _rehomed(3, gone=True)
    assert s.gets("c1", y).judge().counts.keys() >= {"A1", "A1'"}, "whom the original was kept from has to get the copy"


@pytest.mark.parametrize(("at", "of"), [(5, 1), (1, 1), (3, 3)])
def test_a_copy_in_a_wrong_place_is_named(at: int, of: int) -> None:
    """Behind a newer record, in an older stay, or of something else."""
    s, x, _, y = _rehomed(at, copy_of=of)
    assert "R12" in s.gets("c1", x, y).judge().counts


@pytest.mark.parametrize("key", ["k", ""])
def test_only_records_with_a_key_are_missed_before_later_ones(key: str) -> None:
    """Those without one go to any partition: one is purged there while a later one arrives elsewhere."""
    s = Script(Topology(2, [Epoch(0, 2)]))
    gone = Value("r", "w", key, 1)
    s.case.events.append(Ev(Kind.SEND_INVOKE, "w", value=gone))
    s.sent(2, 0 if key == "" else key_hash(b"k") % 2, 0, key=key)
    s.case.events.append(Ev(Kind.SEND_UNKNOWN, "w", value=gone))
    assert bool(s.judge().counts.get("R11")) == (key != "")
