"""Java's regular expressions: as Python has them, and as a consumer that subscribes to topics matches them."""

from __future__ import annotations

import random
import re

import pytest
from keyorder.connector.connect.api.java_regex import compiled, topics_pattern


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("[a[b]]", "inside of the class"), ("[a-z&&[^b]]", "&&"), ("[]a]", "inside of the class"), ("a{", "begins no repetition"),
        ("a{,3}", "begins no repetition"), ("(?#x)a", "(?#"), ("(?P<a>b)", "(?P"), ("(?a)b", "(?a"), ("a(?i)b", "(?i)"),
        ("(?x) a", "(?x"),
        (r"\141", r"\1"), (r"\v", r"\v"), (r"\N{DIGIT ONE}", r"\N"), (r"[\b]", r"\b"),
        ("[[:alpha:]]", "inside of the class"), ("[a", "not closed"),
    ],
)  # fmt: skip
def test_what_python_reads_otherwise_is_refused_by_name(pattern: str, named: str) -> None:
    """A class in a class, a brace that is none, Python's own groups: none of them is matched as something else."""
    with pytest.raises(ValueError, match=re.escape(named)):
        compiled(pattern)


@pytest.mark.parametrize(
    ("pattern", "there", "not_there"),
    [
        (r"orders\.\d+", "orders.17", "orders.d"), (r"(?:a|b)+?", "abba", "abc"), ("(?i)ab", "aB", "b"),
        (r"\Qa.b\E", "a.b", "axb"),
        (r"[\w.]+", "a_1.b", "a-b"), (r"\p{Lower}{2}", "ab", "aB"), ("[^a-z]*", "A-1", "Aa"), (r"(?<n>x)\x61", "xa", "xb"),
        (r"\0141|^b$", "b", "c"),
    ],
)  # fmt: skip
def test_a_pattern_of_topics_says_the_same_without_what_posix_lacks(pattern: str, there: str, not_there: str) -> None:
    """It has brackets of single characters, groups, alternatives and repetitions alone."""
    made = topics_pattern(pattern)
    assert re.fullmatch(r"\^\((?:\[[\w.!-]+\]|[.()|*+?^$]|\{[\d,]+\})*\)\$", made)
    assert [re.search(made, topic) is not None for topic in (there, not_there)] == [True, False]


def test_random_patterns_of_topics_match_the_same_names() -> None:
    """As the expression itself does."""
    chance, taken = random.Random(3), 0
    pieces = [
        "a",
        "b",
        ".",
        r"\d",
        r"\w",
        "[ab]",
        "[^a]",
        "(",
        ")",
        "(?:",
        "|",
        "*",
        "+",
        "?",
        "*?",
        "{1,2}",
        "^",
        "$",
        r"\.",
        "-",
    ]
    names = ["a", "b", "ab", "ba", "aab", "a.b", "a-1", "1", "bbb", "A_b"]
    for _ in range(3000):
        pattern = "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 7)))
        try:
            whole, made = compiled(pattern), re.compile(topics_pattern(pattern))
        except ValueError:  # it is none, or has *+ and its like
            continue
        taken += 1
        assert [whole.fullmatch(n) is None for n in names] == [made.search(n) is None for n in names], pattern
    assert taken > 500
