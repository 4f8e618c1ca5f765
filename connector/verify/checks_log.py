"""Findings in the log itself, before any consumer is looked at.

| id | found when |
|---|---|
| R1 | a record lies where its key has no home: in no segment of the key's chain, or its epoch header names an epoch in which the key lives elsewhere, or it lies below the cut that its epoch began with |
| R2 | in one partition and key, a later record carries an older epoch header |
| R3 | a record lies in a former home at or behind the cut that ended it (`ends`), by its header or by its place |
| R4 | one writer's records of a key stand in another order than they were sent |
| R5 | a was acknowledged before b was invoked, by any writers, and yet b stands before a in L_k |
| R6 | one value stands at two places or more (once per extra place) |
| R6' | the same, of a value that was on its way while its writer's client library began a new producer epoch |
| R7 | two readers, or a reader and an acknowledgement, name different values for one place, or a record in the log was acknowledged or delivered from a place where it does not stand |
| R8 | acknowledged and not in the log (nor trimmed, nor outlived in a compacted log) |
| R9 | reported as definitely failed, and in the log |
| R10 | in the log and never invoked; bytes with a wrong crc or of another run; a value under another record key |
| R11 | a send is not in the log, a later one of the same writer and key is, and that one was invoked before the writer was told (by an error, or by its own end) that the first may be missing |
| R12 | a copy of a re-homed value is another value than its original, or stands elsewhere than behind its original and everything older of its key, and before everything newer |

Null-key records have no home and no order: R1..R5 and R11 pass them by. R11 says nothing about logs that were
trimmed at a home of the key, or compacted: absence proves nothing there.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Sequence

from .anomalies import Findings
from .events import Kind
from .topology import Segment, locate
from .truth import Found, Truth

_DELIVERS = (Kind.DELIVER_START, Kind.DELIVER_END)
_END = 2**62


def check_log(truth: Truth, findings: Findings) -> set[int]:
    """Runs R1..R12; returns the vids that are lost in the log (R8)."""
    if truth.topology is not None:
        _homes(truth, findings)
        _epochs(truth, findings)
        _real_time(truth, findings)
        _send_order(truth, findings)
    _copies(truth, findings)
    _duplicates(truth, findings)
    _one_value_per_place(truth, findings)
    _phantoms(truth, findings)
    _gaps(truth, findings)
    return _losses(truth, findings)


def _homes(truth: Truth, findings: Findings) -> None:
    assert truth.topology is not None
    for found in truth.found:
        if found.key is None:
            continue
        verdict = _misplaced(truth.topology.chain(found.key), found)
        if verdict is not None:
            id, detail = verdict
            findings.add(id, truth.key(found.vid), found.partition, found.offset, detail)


def _misplaced(chain: Sequence[Segment], found: Found) -> tuple[str, str] | None:
    partition, offset = found.partition, found.offset
    if found.epoch is not None:
        segment = next((s for s in reversed(chain) if s.epoch <= found.epoch), chain[0])
        if segment.home != partition:
            return "R1", f"in epoch {found.epoch} the key lives in {segment.home}"
        if segment.upper is not None and offset >= segment.upper:
            return "R3", f"epoch {found.epoch} ended here at {segment.upper}"
        if offset < segment.lower:
            return "R1", f"epoch {found.epoch} begins here at {segment.lower}"
        return None
    if locate(chain, partition, offset) is not None:
        return None
    ended = [s.upper for s in chain if s.home == partition and s.upper is not None and s.upper <= offset]
    if ended:
        return "R3", f"the key left this partition at {max(ended)}"
    return "R1", f"the key's homes are {[s.home for s in chain]}"


def _epochs(truth: Truth, findings: Findings) -> None:
    rows: dict[tuple[int, bytes], list[Found]] = {}
    for found in truth.found:
        if found.key is not None and found.epoch is not None:
            rows.setdefault((found.partition, found.key), []).append(found)
    for row in rows.values():
        row.sort(key=lambda found: found.offset)
        newest = -1
        for found in row:
            epoch = found.epoch or 0
            if epoch < newest:
                detail = f"epoch {epoch} behind epoch {newest}"
                findings.add("R2", truth.key(found.vid), found.partition, found.offset, detail)
            newest = max(newest, epoch)


def _send_order(truth: Truth, findings: Findings) -> None:
    """R4: along one writer's records of a key, by seq, pos must rise."""
    pos = truth.order.pos
    for row in truth.by_writer.members.values():
        last = -1
        for vid in row:
            here = pos.get(vid)
            if here is None:
                continue
            if here < last:
                detail = f"{truth.name(vid)} stands before an earlier send"
                findings.add("R4", truth.key(vid), *truth.place[vid], detail)
            last = max(last, here)


def _real_time(truth: Truth, findings: Findings) -> None:
    """R5: going up L_k, no record may be acknowledged before the latest invocation seen so far."""
    for row in truth.order.members.values():
        latest, whose = -1, -1
        for vid in row:
            send = truth.sends.get(vid)
            if send is None:
                continue
            if send.outcome is Kind.SEND_OK and send.settled < latest:
                detail = f"{truth.name(vid)} was acknowledged before {truth.name(whose)} was invoked"
                findings.add("R5", truth.key(vid), *truth.place[vid], detail)
            if send.invoked > latest:
                latest, whose = send.invoked, vid


def _copies(truth: Truth, findings: Findings) -> None:
    for vid, partition, offset in truth.copies:
        key, chain, here = truth.key(vid), truth.chain(vid) or (), truth.order.pos.get(vid)
        segment = locate(chain, partition, offset)
        if here is None or segment is None:
            findings.add("R12", key, partition, offset, f"a copy of {truth.name(vid)}, which it is not, or not at home")
            continue
        for number, other in enumerate(truth.order.members[key]):
            rank = (truth.order.segment.get(other, 0), truth.place[other][1])
            if (rank > (segment, offset)) != (number > here):
                detail = f"a copy of {truth.name(vid)} on the wrong side of {truth.name(other)}"
                findings.add("R12", key, partition, offset, detail)
                break


def _duplicates(truth: Truth, findings: Findings) -> None:
    first: dict[int, tuple[int, int]] = {}
    for found in truth.found:
        place = first.setdefault(found.vid, (found.partition, found.offset))
        if place != (found.partition, found.offset):
            again = (found.partition, found.offset) in truth.rewritten
            detail = f"{truth.name(found.vid)} is also at {place}"
            findings.add("R6'" if again else "R6", truth.key(found.vid), found.partition, found.offset, detail)


def _one_value_per_place(truth: Truth, findings: Findings) -> None:
    elsewhere: dict[tuple[int, int], int] = {}
    reported: set[tuple[int, int]] = set()
    places: dict[int, set[tuple[int, int]]] = {}
    for found in truth.found:
        places.setdefault(found.vid, set()).add((found.partition, found.offset))
    for vid, partition, offset in truth.copies:
        places.setdefault(vid, {truth.place[vid]} if vid in truth.place else set()).add((partition, offset))
    for event in truth.history.events():
        if event.offset < 0 or not (event.kind is Kind.SEND_OK or event.kind in _DELIVERS):
            continue
        place = (event.partition, event.offset)
        there = truth.at.get(event.partition, {}).get(event.offset)
        if there is None:
            there = elsewhere.setdefault(place, event.vid)
        wrong = there != event.vid
        if event.vid in places:
            wrong = wrong or place not in places[event.vid]
        if wrong and place not in reported:
            reported.add(place)
            who = f"{event.actor}: {_name(truth, event.vid)}, elsewhere {_name(truth, there)}"
            findings.add("R7", _key(truth, event.vid), *place, who)


def _losses(truth: Truth, findings: Findings) -> set[int]:
    lost = set()
    placed = truth.place
    for vid, send in truth.sends.items():
        if send.outcome is not Kind.SEND_OK or vid in placed:
            continue
        if truth.compacted and send.offset < 0 and _newer_present(truth, vid):
            continue
        lost.add(vid)
        detail = f"{truth.name(vid)}: lost in log"
        findings.add("R8", truth.key(vid), send.partition, send.offset, detail)
    return lost


def _newer_present(truth: Truth, vid: int) -> bool:
    value = truth.history.values[vid]
    row = truth.by_writer.members.get((value.writer, value.key), [])
    return bool(row) and truth.history.values[row[-1]].seq > value.seq


def _phantoms(truth: Truth, findings: Findings) -> None:
    """R9 and R10."""
    for partition, offset in truth.foreign:
        findings.add("R10", "", partition, offset, "no value of this run, or its crc is wrong")
    for found in truth.found:
        send = truth.sends.get(found.vid)
        key, name = truth.key(found.vid), truth.name(found.vid)
        if send is None:
            findings.add("R10", key, found.partition, found.offset, f"{name} was never invoked")
        elif send.outcome is Kind.SEND_FAIL:
            findings.add("R9", key, found.partition, found.offset, f"{name} was reported as failed")
        if found.key is not None and found.key != key.encode():
            findings.add("R10", key, found.partition, found.offset, f"{name} is filed under {found.key!r}")


def _gaps(truth: Truth, findings: Findings) -> None:
    if truth.compacted:
        return
    rows: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for vid in truth.sends:
        value = truth.history.values[vid]
        if value.key:  # the others go to any partition, and may be given up in one while they arrive in another
            rows.setdefault((value.writer, value.key), []).append((value.seq, vid))
    for row in rows.values():
        row.sort(reverse=True)
        earliest = _END  # the earliest invocation of a later send that is in the log
        for _, vid in row:
            send = truth.sends[vid]
            if vid in truth.place:
                earliest = min(earliest, send.invoked)
                continue
            told = send.told if send.told >= 0 else _END
            if send.outcome is not Kind.SEND_OK and earliest < told and not _may_be_trimmed(truth, vid):
                detail = f"{truth.name(vid)} is missing before later sends"
                findings.add("R11", truth.key(vid), -1, -1, detail)


def _may_be_trimmed(truth: Truth, vid: int) -> bool:
    chain = truth.chain(vid)
    homes = truth.log_starts if chain is None else {segment.home for segment in chain}
    return any(truth.log_starts.get(home, 0) > 0 for home in homes)


def _name(truth: Truth, vid: int) -> str:
    return truth.name(vid) if vid >= 0 else "foreign bytes"


def _key(truth: Truth, vid: int) -> str:
    return truth.key(vid) if vid >= 0 else ""
