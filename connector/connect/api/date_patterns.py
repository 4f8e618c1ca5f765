"""Java's SimpleDateFormat: every letter of its patterns, in UTC, with the names and weeks of the United States.

Reading is lenient as there: a month 13 is carried over, and text behind what the pattern takes is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ... import clock
from . import java_calendar as calendar

LETTERS = "GyMLdkHmsSEDFwWahKzZYuX"
_NUMERIC = "ydkHmsSDFwWhKYu"
_DAY_MS = 86_400_000
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_ERAS = {"BC": 0, "AD": 1, "Before Christ": 0, "Anno Domini": 1}
# Hours of the time zones that are read by name, by their present offset; others are read as offsets.
_ZONES = {
    "Coordinated Universal Time": 0, "Greenwich Mean Time": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2,
    "EET": 2, "EEST": 3, "BST": 1, "MSK": 3, "HKT": 8, "JST": 9, "AEST": 10, "AEDT": 11,
    "NZST": 12, "NZDT": 13, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
    "HST": -10,
}  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """A run of one letter, or literal text (letter empty)."""

    letter: str
    count: int
    text: str = ""


class DatePattern:
    """A pattern, compiled. Raises ValueError that names what is wrong: a letter, a quote.

    now: milliseconds since 1970, by default the present: a year of two digits lies within 80 years before and 20 after it.
    """

    def __init__(self, pattern: str, now: int | None = None) -> None:
        self.pattern = pattern
        self._parts = _compiled(pattern)
        day, inside = divmod(clock.wall_ms() if now is None else now, _DAY_MS)
        year, month, number = calendar.date_of(day)
        self._oldest = (year - 80, calendar.day_number(year - 80, month, number) * _DAY_MS + inside)

    def format(self, milliseconds: int) -> str:
        """The text of a time in milliseconds since 1970."""
        day, inside = divmod(milliseconds, _DAY_MS)
        return "".join(part.text if not part.letter else _shown(part, day, inside) for part in self._parts)

    def parse(self, text: str) -> int:
        """Milliseconds since 1970. Raises ValueError for text that does not begin as the pattern says."""
        return self.parse_prefix(text)[0]

    def parse_prefix(self, text: str) -> tuple[int, int]:
        """(milliseconds since 1970, how many characters of the text were taken). Raises as `parse`."""
        reader = _Reader(text, self._oldest)
        for part, after in zip(self._parts, [*self._parts[1:], None], strict=True):
            if not part.letter:
                if not text.startswith(part.text, reader.at):
                    raise ValueError(f"{text!r} does not match the pattern {self.pattern!r} at position {reader.at}")
                reader.at += len(part.text)
                continue
            start = reader.at
            try:
                reader.take(part, after is not None and _numeric(after))
            except _NoMatchError:
                raise ValueError(
                    f"{text!r} does not match {part.letter * part.count} of the pattern {self.pattern!r} at position {start}"
                ) from None
        return reader.milliseconds(), reader.at


def _compiled(pattern: str) -> list[_Part]:
    parts: list[_Part] = []
    i, quoted, literal = 0, False, ""
    while i < len(pattern):
        c = pattern[i]
        if c == "'":
            if pattern[i + 1 : i + 2] == "'":
                literal += "'"
                i += 2
                continue
            quoted = not quoted
            i += 1
            continue
        if quoted or not (c.isascii() and c.isalpha()):
            literal += c
            i += 1
            continue
        if c not in LETTERS:
            raise ValueError(f"{c!r} is no letter of a date pattern: use one of {LETTERS}, or quote it")
        count = 1
        while pattern[i + count : i + count + 1] == c:
            count += 1
        if c == "X" and count > 3:
            raise ValueError("X may stand at most three times in a date pattern")
        if literal:
            parts.append(_Part("", 0, literal))
            literal = ""
        parts.append(_Part(c, count))
        i += count
    if quoted:
        raise ValueError("a quote of the date pattern is not closed")
    if literal:
        parts.append(_Part("", 0, literal))
    return parts


def _numeric(part: _Part) -> bool:
    return bool(part.letter) and (part.letter in _NUMERIC or (part.letter in "ML" and part.count <= 2))


# -- writing ---------------------------------------------------------------------------------------------------------


def _padded(number: int, count: int) -> str:
    return f"{'-' if number < 0 else ''}{abs(number):0{count}d}"


def _year(number: int, count: int) -> str:
    return _padded(number, count) if count != 2 else f"{'-' if number < 0 else ''}{abs(number) % 100:02d}"


def _shown(part: _Part, day: int, inside: int) -> str:
    letter, count = part.letter, part.count
    if letter in _NUMBERS:
        return _padded(_NUMBERS[letter](day, inside), count)
    if letter == "S":
        return _padded(inside % 1000, count)
    year, month, _ = calendar.date_of(day)
    if letter == "y":
        return _year(year if year > 0 else 1 - year, count)
    if letter == "Y":
        return _year(calendar.week_of_year(day)[0], count)
    if letter in "ML":
        name = _MONTHS[month - 1]
        return _padded(month, count) if count < 3 else name if count > 3 else name[:3]
    if letter == "E":
        name = _DAYS[calendar.day_of_week(day)]
        return name if count > 3 else name[:3]
    if letter == "a":
        return "AM" if inside < _DAY_MS // 2 else "PM"
    if letter == "G":
        return "AD" if year > 0 else "BC"
    if letter == "z":
        return "UTC" if count < 4 else "Coordinated Universal Time"
    return "+0000" if letter == "Z" else "Z"


def _hour(inside: int) -> int:
    return inside // 3_600_000


_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "d": lambda day, inside: calendar.date_of(day)[2],
    "D": lambda day, inside: calendar.day_of_year(day),
    "F": lambda day, inside: (calendar.date_of(day)[2] - 1) // 7 + 1,
    "w": lambda day, inside: calendar.week_of_year(day)[1],
    "W": lambda day, inside: calendar.week_of_month(day),
    "u": lambda day, inside: calendar.day_of_week(day) or 7,
    "H": lambda day, inside: _hour(inside),
    "k": lambda day, inside: _hour(inside) or 24,
    "K": lambda day, inside: _hour(inside) % 12,
    "h": lambda day, inside: _hour(inside) % 12 or 12,
    "m": lambda day, inside: inside // 60_000 % 60,
    "s": lambda day, inside: inside // 1000 % 60,
}


# -- reading ---------------------------------------------------------------------------------------------------------


class _NoMatchError(Exception):
    pass


_NUMBER = re.compile(r"(-?[0-9]+)(?:E([0-9]{1,2}))?")
_OFFSET = {
    "Z": re.compile(r"([+-])(\d\d)(\d\d)"),
    "GMT": re.compile(r"GMT([+-])(\d\d?):(\d\d)", re.IGNORECASE),
    "X": re.compile(r"([+-])(\d\d)"),
    "XX": re.compile(r"([+-])(\d\d)(\d\d)"),
    "XXX": re.compile(r"([+-])(\d\d):(\d\d)"),
}


class _Reader:
    """Takes fields from a text. A field that is given again counts by its last value; which fields make the date is a matter
    of which was given last.
    """

    def __init__(self, text: str, oldest: tuple[int, int]) -> None:
        self._text, self._oldest = text, oldest
        self._ambiguous = False
        self.at = 0
        self._fields: dict[str, int] = {}
        self._stamps: dict[str, int] = {}
        self._offset = 0

    def take(self, part: _Part, abutting: bool) -> None:
        """One part of the pattern; abutting: a number follows at once, so only as many digits are taken as there are letters."""
        start = self.at
        while self._text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if self.at >= len(self._text):
            raise _NoMatchError
        if part.letter in "zZX":
            self._zone(part)
        elif part.letter == "G":
            self._set("G", self._name(_ERAS))
        elif part.letter == "a":
            self._set("a", self._name({"AM": 0, "PM": 1}))
        elif part.letter == "E":
            self._set("E", self._name(_short_and_long(_DAYS)))
        elif part.letter in "ML" and part.count > 2:
            self._set("M", self._name(_short_and_long(_MONTHS)) + 1)
        else:
            self._number(part, start + part.count if abutting else None)

    def _set(self, field: str, value: int) -> None:
        self._fields[field] = value
        self._stamps[field] = len(self._stamps) + 1 + max(self._stamps.values(), default=0)

    def _name(self, names: Mapping[str, int]) -> int:
        rest = self._text[self.at :].lower()
        found = max((n for n in names if rest.startswith(n.lower())), key=len, default=None)
        if found is None:
            raise _NoMatchError
        self.at += len(found)
        return names[found]

    def _number(self, part: _Part, end: int | None) -> None:
        if end is not None and end > len(self._text):
            raise _NoMatchError
        match = _NUMBER.match(self._text, self.at, len(self._text) if end is None else end)
        if match is None:
            raise _NoMatchError
        self.at = match.end()
        value, letter = int(match[1]) * 10 ** int(match[2] or 0), part.letter
        if letter in "yY" and part.count <= 2 and len(match[0]) == 2 and value >= 0:
            oldest = self._oldest[0]
            self._ambiguous = value == oldest % 100
            value += oldest // 100 * 100 + (100 if value < oldest % 100 else 0)
        if letter == "u":
            self._set("E", value % 7 + (value - 1) // 7 * 7)
        elif letter in "Hk":
            self._set("H", 0 if letter == "k" and value == 24 else value)
        elif letter in "hK":
            self._set("h", 0 if letter == "h" and value == 12 else value)
        else:
            self._set("M" if letter == "L" else letter, value)

    def _zone(self, part: _Part) -> None:
        if part.letter == "X":
            if self._text.startswith("Z", self.at):
                self.at += 1
                self._offset = 0
                return
            match = _OFFSET["X" * part.count].match(self._text, self.at)
        else:
            match = _OFFSET["GMT"].match(self._text, self.at) or _OFFSET["Z"].match(self._text, self.at)
            if match is None:
                self._offset = self._name(_ZONES) * 60
                return
        if match is None:
            raise _NoMatchError
        hours, minutes = int(match[2]), int(match[3]) if match.lastindex == 3 else 0
        if hours > 23 or minutes > 59:
            raise _NoMatchError
        self.at = match.end()
        self._offset = (hours * 60 + minutes) * (-1 if match[1] == "-" else 1)

    def milliseconds(self) -> int:
        """The time that the fields make."""
        found = self._time()
        if self._ambiguous and found < self._oldest[1]:
            self._fields["y"] = self._fields.get("y", 0) + 100
            found = self._time()
        return found

    def _time(self) -> int:
        get = self._fields.get
        hours = get("H", 0) if self._hours_by_day() else get("h", 0) + 12 * get("a", 0)
        inside = ((hours * 60 + get("m", 0) - self._offset) * 60 + get("s", 0)) * 1000 + get("S", 0)
        return self._day() * _DAY_MS + inside

    def _hours_by_day(self) -> bool:
        by_day = self._stamps.get("H", 0)
        by_half = self._both("h", "a")
        if not by_day and not by_half:
            return False
        return by_day >= by_half

    def _both(self, one: str, other: str) -> int:
        stamps = self._stamps
        return max(stamps[one], stamps[other]) if one in stamps and other in stamps else 0

    def _day(self) -> int:
        get, stamps = self._fields.get, self._stamps
        if stamps.get("Y", 0) > stamps.get("y", 0):
            start = calendar.sunday(calendar.day_number(get("Y", 0), 1, 1))
            return start + 7 * (get("w", 1) - 1) + get("E", 0)
        year = get("y", 1970)
        if get("G", 1) == 0:
            year = 1 - year
        month = get("M", 1)
        first = calendar.day_number(year, month, 1)
        best = {
            "d": stamps.get("d", 0),
            "W": self._both("W", "E"),
            "F": self._both("F", "E"),
            "D": stamps.get("D", 0),
            "w": self._both("w", "E"),
        }
        if not any(best.values()):
            best = {
                "d": 0,
                "W": stamps.get("W", 0),
                "F": max(stamps.get("F", 0), stamps.get("E", 0)),
                "D": stamps.get("D", 0),
                "w": stamps.get("w", 0),
            }
        chosen = max(best, key=lambda name: best[name])
        if chosen == "W":
            return calendar.sunday(first) + 7 * (get("W", 1) - 1) + get("E", 0)
        if chosen == "F":
            weeks = get("F", 1)
            last = first + 7 * weeks if weeks >= 0 else calendar.day_number(year, month + 1, 1) + 7 * (weeks + 1)
            return last - 1 - (calendar.day_of_week(last - 1) - get("E", 0)) % 7
        if chosen == "D":
            return calendar.day_number(year, 1, 1) + get("D", 1) - 1
        if chosen == "w":
            return calendar.sunday(calendar.day_number(year, 1, 1)) + 7 * (get("w", 1) - 1) + get("E", 0)
        return calendar.day_number(year, month, get("d", 1))


def _short_and_long(names: tuple[str, ...]) -> dict[str, int]:
    return {form: i for i, name in enumerate(names) for form in (name, name[:3])}
