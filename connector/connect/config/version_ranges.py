"""Versions and ranges as Maven writes them, by which Kafka Connect chooses plugins (KIP-891): `[4.1,)`, `(,5.0)`, `4.1.2`."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What stands before a release, in that order; "" is the release itself. A word that is not here comes after all of them.
_WORDS = {"alpha": 0, "beta": 1, "milestone": 2, "rc": 3, "snapshot": 4, "": 5, "sp": 6}
_SHORT = {"a": "alpha", "b": "beta", "m": "milestone"}
_SAME = {"cr": "rc", "ga": "", "final": "", "release": ""}
_BRACKET = re.compile(r"[\[\]()]")
_GAP = re.compile(r"(^|[.-])(?=[.-])")  # a part that is empty is 0
_PART = re.compile(r"([-.]?)(\d+|[^\d.-]+)")
Item = tuple[int, int, str]  # of words: (0, rank, word); of numbers (2, number, "")
_RELEASE: Item = (0, 5, "")


def latest(text: str | None) -> bool:
    """Whether no version is asked for: nothing is given, or `latest`."""
    return text is None or text == "latest"


def fits(text: str, version: str) -> bool:
    """Whether a version is the one that is asked for, or lies in the range. Raises ValueError for what is no range."""
    text = text.strip()
    if not text.startswith(("[", "(")):
        if _BRACKET.search(text):
            raise ValueError(f"{text} is no range: it begins with [ or (")
        text = f"[{text}]"
    return any(part.holds(version) for part in _ranges(text))


@dataclass(frozen=True)
class _Range:
    low: str | None
    low_in: bool
    high: str | None
    high_in: bool

    def holds(self, version: str) -> bool:
        above = 1 if self.low is None else compare(version, self.low)
        below = -1 if self.high is None else compare(version, self.high)
        return (above > 0 or (above == 0 and self.low_in)) and (below < 0 or (below == 0 and self.high_in))


def _ranges(text: str) -> list[_Range]:
    found: list[_Range] = []
    rest = text
    while rest.startswith(("[", "(")):
        end = min((at for at in (rest.find("]"), rest.find(")")) if at >= 0), default=-1)
        if end < 0:
            raise ValueError(f"the range {text} has no end: close it with ] or )")
        made = _range(rest[0] == "[", rest[1:end], rest[end] == "]")
        before = found[-1].high if found else None
        if before is not None and (made.low is None or compare(made.low, before) < 0):
            raise ValueError(f"the ranges of {text} overlap")
        found.append(made)
        rest = rest[end + 1 :].strip().removeprefix(",").strip()
    if rest:
        raise ValueError(f"{rest} stands behind a range: give ranges alone")
    return found


def _range(low_in: bool, inner: str, high_in: bool) -> _Range:
    low, comma, high = (word.strip() for word in inner.partition(","))
    if not comma:
        if not (low_in and high_in):
            raise ValueError(f"one version is given as [{low}]")
        return _Range(low, True, low, True)
    if low and high:
        order = compare(low, high)
        if order > 0 or (order == 0 and not (low_in and high_in)):
            raise ValueError(f"a range from {low} to {high} holds nothing")
    return _Range(low or None, low_in, high or None, high_in)


def compare(one: str, other: str) -> int:
    """Below, at or above 0, as Maven orders versions: 4.1-rc1 < 4.1 = 4.1.0 < 4.1-x < 4.1.1."""
    a, b = _items(one), _items(other)
    for x, y in zip(a + [None] * (len(b) - len(a)), b + [None] * (len(a) - len(b)), strict=True):
        # What one of them lacks is a release, or the number 0.
        left, right = x or _nothing(y), y or _nothing(x)
        if left != right:
            return -1 if left < right else 1
    return 0


def _nothing(beside: Item | None) -> Item:
    return (2, 0, "") if beside is not None and beside[0] == 2 else _RELEASE


def _items(version: str) -> list[Item | None]:
    parts = _PART.findall(_GAP.sub(r"\g<0>0", version.strip().lower()))
    found: list[Item] = []
    for number, (_, text) in enumerate(parts):
        if text.isdigit():
            found.append((2, int(text), ""))
            continue
        followed = number + 1 < len(parts) and parts[number + 1][0] == "" and parts[number + 1][1].isdigit()
        word = _SHORT.get(text, text) if followed else text
        word = _SAME.get(word, word)
        found.append((0, _WORDS.get(word, len(_WORDS)), "" if word in _WORDS else word))
    while found and found[-1] in ((2, 0, ""), _RELEASE):
        found.pop()
    return list(found)
