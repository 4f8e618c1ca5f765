"""Transforms and predicates beside the JVM's: every one on every type, and date patterns at random."""

from __future__ import annotations

import os
import random

import pytest
from keyorder.connector.connect.api.date_patterns import LETTERS, DatePattern
from support.connect_cases import PAGE, TYPES, Case, cases, other_cases, page, sink, verdicts
from support.connect_judge import Judge, plain_record
from support.connect_random import random_case, random_router

# How many random cases: `make connect-parity` has more.
COUNT = int(os.environ.get("KEYORDER_CONNECT_CASES", "150")) * 4


def test_the_table_of_the_documents_is_what_the_jvm_says(judge: Judge) -> None:
    """No case differs, and docs/connect-parity.md tells each refusal; `make docs` writes it."""
    assert page(PAGE.read_text(), verdicts(judge)) == PAGE.read_text()


@pytest.mark.parametrize("case", list(other_cases()), ids=lambda case: f"{case.transform} {case.config}"[:60])
def test_what_is_no_matter_of_a_type_is_equal(judge: Judge, case: Case) -> None:
    """Routers, literals, paths, predicates, orders of keys; what is refused there is refused here."""
    verdict, why = case.verdict(judge)
    assert verdict == "equal", why


def test_random_settings_do_what_they_do_there(judge: Judge) -> None:
    """Of each transform of fields, on records of random schemas. What is refused here alone is a number, or a wrong setting."""
    for seed in range(COUNT):
        case = random_case(seed)
        verdict, why = case.verdict(judge)
        assert verdict != "different", f"seed {seed}, {case}: {why}"
        assert verdict != "refused" or any(reason in why for reason in REASONS), f"seed {seed}, {case}: {why}"


REASONS = (
    "does not fit", "are too many", "years 1 to 9999", "is no int",  # numbers and times
    "write old:new", "are to be called", "which is to be called",  # renames that take another field's value there
    "have one name", "has no name",  # fields that the JVM cannot make either once it looks
)  # fmt: skip


def test_random_regular_expressions_are_java_s_or_refused(judge: Judge) -> None:
    """No expression means something else here."""
    verdicts = []
    for seed in range(COUNT):
        case = random_router(seed)
        verdict, why = case.verdict(judge)
        assert verdict in ("equal", "refused"), f"seed {seed}, {case.config}: {why}"
        verdicts.append(verdict)
    assert verdicts.count("equal") > COUNT / 2


@pytest.mark.parametrize("old", ["blacklist", "whitelist"])
def test_an_old_name_of_a_setting_does_what_it_says(judge: Judge, old: str) -> None:
    """Kafka Connect 4 leaves out the names that ReplaceField's lists had before, and passes on what was to be dropped."""
    case = Case("ReplaceField$Value", "", {old: "a"}, sink({"a": 1, "b": 2}))
    assert case.theirs(judge)[1] == plain_record(case.record)
    assert case.ours() == plain_record(sink({"b": 2} if old == "blacklist" else {"a": 1}))


def test_every_type_meets_every_transform() -> None:
    """The table has no empty cell."""
    assert all(any(True for _ in cases("Cast$Value", kind)) for kind in TYPES)


PATTERNS = [
    "G y yy yyy yyyy yyyyy", "Y YY YYYY", "M MM MMM MMMM L LL LLL LLLL", "w ww F D DDD d dd", "E EEE EEEE u uu",
    "a H HH k K h hh m s S SSS SSSSSS", "z zzzz Z ZZZZ X XX XXX", "''yyyy'T'HH''mm", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "W",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_times_are_written_by_patterns_as_java_writes_them(judge: Judge, pattern: str) -> None:
    """At random, from 1200 BC on."""
    chance = random.Random(5)
    for _ in range(100):
        moment = chance.choice([chance.randrange(-(10**14), 10**14), chance.randrange(0, 4 * 10**12)])
        assert DatePattern(pattern).format(moment) == judge.ask(op="format", pattern=pattern, millis=moment)["ok"]


@pytest.mark.parametrize("letter", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
def test_a_letter_that_java_does_not_know_is_refused_by_name(judge: Judge, letter: str) -> None:
    """And no other."""
    known = "ok" in judge.ask(op="format", pattern=letter, millis=0)
    assert known == (letter in LETTERS)
    if not known:
        with pytest.raises(ValueError, match=letter):
            DatePattern(letter)


TEXTS = [
    ("yyyy-MM-dd", "{y}-{i}-{j}"), ("yyyyMMdd", "{y}{ii}{jj}"), ("d MMM yyyy HH:mm:ss", "{j} {month} {y} {i}:{j}:{i}"),
    ("EEE, d MMM yy hh:mm a z", "{day}, {j} {month} {ii} {i}:{j} {half} {zone}"), ("YYYY-'W'ww-u", "{y}-W{ii}-{k}"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "{y}-{ii}-{jj}T{ii}:{jj}:{ii}.{y}{offset}"), ("yyyy-MM-dd HH:mmX", "{y}-{ii}-{jj} {ii}:{jj}{offset}"),
    ("yyyy-MM-dd HH:mmZ", "{y}-{ii}-{jj} {ii}:{jj}{offset}"), ("YYYY ww E", "{y} {ii} {day}"), ("yyyy ww", "{y} {ii}"),
    ("yyyy MM W E", "{y} {ii} {k} {day}"), ("yyyy MM F E", "{y} {ii} {k} {day}"), ("yyyy DDD", "{y} {i}{j}"), ("y G", "{y} {era}"),
    ("h a", "{i} {half}"), ("K:mm a", "{i}:{jj} {half}"), ("k H a", "{i} {j} {half}"), ("MM/dd/yy", "{ii}/{jj}/{k}"), ("ss", "{k}{offset}"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "form"), TEXTS)
def test_texts_are_read_by_patterns_as_java_reads_them(judge: Judge, pattern: str, form: str) -> None:
    """Leniently: a month 13 and a day 40 are carried over, what is left behind the pattern does not count."""
    chance = random.Random(6)
    for _ in range(100):
        i, j = chance.randrange(0, 40), chance.randrange(0, 70)
        text = form.format(
            y=chance.choice([chance.randrange(1, 100), chance.randrange(1900, 2100), chance.randrange(1, 20_000)]),
            i=i, j=j, ii=f"{i:02d}", jj=f"{j:02d}", k=chance.randrange(-1, 10), day=chance.choice(["Mon", "Sunday", "sat", "xx"]),
            month=chance.choice(["Jan", "february", "SEP", "Sept", "yy"]), half=chance.choice(["AM", "pm", "x"]),
            era=chance.choice(["AD", "bc", "Anno Domini", "CE"]), zone=chance.choice(["UTC", "GMT", "GMT+02:30", "-0800", "x"]),
            offset=chance.choice(["Z", "+01:00", "+0130", "-05", "", "x", "+1"]),
        )  # fmt: skip
        try:
            ours = DatePattern(pattern).parse(text)
        except ValueError:
            ours = None
        assert judge.ask(op="parse", pattern=pattern, text=text).get("ok") == ours, text
