"""Whole numbers out of bytes that anybody may have written."""

from __future__ import annotations

#: The largest offset that Kafka has, and with it the largest number of ours.
LARGEST = 2**63 - 1
_DIGITS = len(str(LARGEST))


def number_of(text: str) -> int | None:
    """The number that ASCII digits spell, None for any other text and for one above `LARGEST`.

    `isdigit()` alone also takes superscripts and foreign digits, which `int()` refuses or reads; and `int()` refuses what is
    longer than some thousand digits.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        return None
    number = int(text)
    return number if number <= LARGEST else None
