"""Days as Java's GregorianCalendar counts them: Julian before 15 October 1582, weeks as in the United States, all in UTC.

A day is a number, 0 being 1 January 1970; years are astronomical (0 is 1 BC). No year is too far away.
"""

from __future__ import annotations

_CUTOVER = -141_427  # 15 October 1582
_GREGORIAN_EPOCH, _JULIAN_EPOCH = -719_468, -719_470  # 1 March of the year 0 in each calendar
_BEFORE = (306, 337, 0, 31, 61, 92, 122, 153, 184, 214, 245, 275)  # days from 1 March to the first of each month


def day_number(year: int, month: int, day: int) -> int:
    """The number of a date; month and day may lie outside of their range and are carried over."""
    year, month = year + (month - 1) // 12, (month - 1) % 12
    shifted = year - (month < 2)
    inside = 365 * shifted + shifted // 4 + _BEFORE[month] + day - 1
    gregorian = inside - shifted // 100 + shifted // 400 + _GREGORIAN_EPOCH
    return gregorian if gregorian >= _CUTOVER else inside + _JULIAN_EPOCH


def date_of(number: int) -> tuple[int, int, int]:
    """(year, month, day) of a day."""
    if number >= _CUTOVER:
        cycle, rest = divmod(number - _GREGORIAN_EPOCH, 146_097)
        inside = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
        left = rest - (365 * inside + inside // 4 - inside // 100)
        year = inside + 400 * cycle
    else:
        cycle, rest = divmod(number - _JULIAN_EPOCH, 1461)
        inside = (rest - rest // 1460) // 365
        left = rest - 365 * inside
        year = inside + 4 * cycle
    month = next(m for m in (1, 0, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2) if _BEFORE[m] <= left)
    return year + (month < 2), month + 1, left - _BEFORE[month] + 1


def day_of_week(number: int) -> int:
    """0 for Sunday to 6 for Saturday."""
    return (number + 4) % 7


def day_of_year(number: int) -> int:
    """1 for the first of January."""
    return number - day_number(date_of(number)[0], 1, 1) + 1


def sunday(number: int) -> int:
    """The Sunday on or before a day, with which its week begins."""
    return number - day_of_week(number)


def week_of_year(number: int) -> tuple[int, int]:
    """(week year, week): week 1 is the one that holds the first of January."""
    year = date_of(number)[0]
    if sunday(day_number(year + 1, 1, 1)) <= number:
        year += 1
    return year, (number - sunday(day_number(year, 1, 1))) // 7 + 1


def week_of_month(number: int) -> int:
    """1 for the week that holds the first of the month."""
    year, month, _ = date_of(number)
    return (number - sunday(day_number(year, month, 1))) // 7 + 1
