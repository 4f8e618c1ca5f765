"""The type of every option that is a time: seconds that Python and the client library can wait."""

from __future__ import annotations

import math
from typing import Any

import click

# 23 days: the client library counts milliseconds in 32 bits.
_MOST = 2_000_000


class Seconds(click.FloatRange):
    """A finite number of seconds; more than 0 unless `least` is given."""

    def __init__(self, least: float | None = None, most: float = _MOST) -> None:
        super().__init__(least or 0, most, min_open=least is None)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As a range does, which lets through what is no number."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return found
