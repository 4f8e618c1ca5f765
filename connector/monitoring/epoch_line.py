"""A topic's epochs on a line of time, as a picture within the status page: how many partitions, from when on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from html import escape

from ...partitioner.epochs import Epoch

# In pixels: half of a wide page, and a phone.
WIDE, NARROW = 560, 310
# In pixels. Each epoch has room for its words; what is left of the width is shared out by how long each lasted.
_LEAST, _LEFT = 88, 6
_TOP, _RISE, _UNDER = 22, 34, 18
#: What it looks like, within the page's own style.
STYLE = """
:root { --mark: #3f51b5; } @media (prefers-color-scheme: dark) { :root { --mark: #8c9eff; } }
.line { display: block; } .line.narrow { display: none; }
@media (max-width: 40rem) { .line.wide { display: none; } .line.narrow { display: block; } }
.line path { fill: none; stroke: var(--mark); stroke-width: 2.5; }
.line circle { fill: var(--mark); } .line text { fill: currentColor; font-size: 12px; } .line .count { font-weight: 600; }
"""


def epoch_line(epochs: Sequence[Epoch], now_ms: int, width: int = WIDE) -> str:
    """SVG of the newest epochs, as many as the width has room for, oldest left; "" for a topic whose times are not known.

    now_ms: milliseconds since 1970, where the line ends. A time that lies before an earlier epoch's, from another
    controller's clock, counts as that one's. Only the first epoch may lack a time: the line then begins in the unknown.
    """
    shown = epochs[-(width // _LEAST) :]
    if not shown or not all(epoch.committed_at_ms for epoch in shown[1:]) or not shown[-1].committed_at_ms:
        return ""
    times: list[int] = []
    for epoch in shown:
        times.append(max(epoch.committed_at_ms, *times[-1:], 0))
    if not times[0]:
        times[0] = times[1]
    ends = [*times[1:], max(now_ms, times[-1])]
    lasted = [end - begin for begin, end in zip(times, ends, strict=True)]
    spare = max(0, width - _LEAST * len(shown))
    widths = [_LEAST + (spare * each / sum(lasted) if sum(lasted) else 0) for each in lasted]
    counts = [epoch.count for epoch in shown]
    low, high = min(counts), max(counts)
    heights = [_TOP + (_RISE * (high - count) / (high - low) if high > low else _RISE) for count in counts]

    path, marks, x = "", "", float(_LEFT)
    for epoch, length, y in zip(shown, widths, heights, strict=True):
        path += f"{'L' if path else 'M'}{x:.1f} {y:.1f}H{x + length:.1f}"
        day, hour = _when(epoch.committed_at_ms)
        marks += (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
            f'<text class="count" x="{x + 6:.1f}" y="{y - 9:.1f}">{epoch.count}</text>'
            f'<text x="{x - 3:.1f}" y="{_TOP + _RISE + _UNDER}">{day}</text>'
            f'<text x="{x - 3:.1f}" y="{_TOP + _RISE + _UNDER + 15}">{hour}</text>'
        )
        x += length
    size = f'width="{x + _LEFT:.0f}" height="{_TOP + _RISE + _UNDER + 20}"'
    told = "; ".join(f"{epoch.count} from {' '.join(_when(epoch.committed_at_ms))}" for epoch in shown)
    label = escape(f"Partitions over time: {told}", quote=True)
    kind = "narrow" if width == NARROW else "wide"
    return f'<svg class="line {kind}" role="img" aria-label="{label}" {size}><path d="{path}"/>{marks}</svg>'


def _when(at_ms: int) -> tuple[str, str]:
    """Day and time of day, UTC."""
    if not at_ms:
        return "before", ""
    at = datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    return at.strftime("%Y-%m-%d"), at.strftime("%H:%M:%S")
