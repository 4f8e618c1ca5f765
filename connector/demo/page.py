"""The report as one HTML file that needs nothing else: the picture is inside, nothing is fetched."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape

from .outcome import Outcome
from .report import CHANGE_COLUMNS, FIGURES, KINDNESS, LATENCY_COLUMNS, change_rows, conclusion, latency_rows
from .settings import DemoSettings

_STYLE = """
:root { color-scheme: light dark; --text: #1d2733; --soft: #5f6b78; --line: #e3e7ec; --back: #f5f7f9;
  --good: #18794e; --goodback: #e8f6ee; --bad: #b42318; --badback: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --text: #dfe4ea; --soft: #98a3b0; --line: #3a424c; --back: #1d2228;
  --good: #5fd39b; --goodback: #12301f; --bad: #ff8f85; --badback: #3d1714; } body { background: #14181d; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); max-width: 76rem; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.9rem; margin: 0 0 .4rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; }
.verdict { font-size: 1.15rem; font-weight: 600; padding: .8rem 1.1rem; border-radius: .5rem; }
.good { background: var(--goodback); color: var(--good); } .bad { background: var(--badback); color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: 1rem; margin: 1.4rem 0; }
.tile { border: 1px solid var(--line); border-radius: .5rem; padding: .9rem 1.1rem; }
.tile b { display: block; font-size: 2rem; line-height: 1.2; } .tile span { color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0 1.2rem; width: 100%; }
th, td { text-align: right; padding: .4rem .8rem; border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 500; } th:first-child, td:first-child { text-align: left; }
img { width: 100%; min-width: 52rem; border-radius: .5rem; background: #fff; }
.red { color: var(--bad); } .green { color: var(--good); }
pre { background: var(--back); padding: 1rem; border-radius: .5rem; overflow-x: auto; font-size: .85rem; }
@media (max-width: 40rem) { body { margin: 1rem auto; padding: 0 .9rem; } .wide td { white-space: nowrap; }
  td:first-child { white-space: normal; min-width: 9rem; } th, td { padding: .4rem .5rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); gap: .6rem; } }
"""


def render_page(outcome: Outcome, settings: DemoSettings, png: bytes) -> str:
    """The whole page."""
    counts = " → ".join(map(str, outcome.counts))
    good = "good" if outcome.kept else "bad"
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<title>keyorder: {counts} partitions under load</title><style>{_STYLE}</style></head><body>",
        f"<h1>{counts} partitions under load</h1>",
        f"<p class='verdict {good}'>{escape(conclusion(outcome))}</p>",
        _tiles(outcome),
        "<h2>Partition by partition</h2>",
        "<div class='wide'><img alt='Timeline of each partition of both topics' "
        f"src='data:image/png;base64,{b64encode(png).decode()}'></div>",
        _reading(),
        "<h2>What the clients really saw</h2>",
        _figures(outcome),
        "<h2>The changes</h2>",
        _table(CHANGE_COLUMNS, change_rows(outcome)),
        "<h2>What order costs</h2>",
        _table(LATENCY_COLUMNS, latency_rows(outcome)),
        "<h2>What happened</h2>",
        _happened(outcome, settings),
        "<h2>The checker's verdict</h2>",
        f"<pre>stock clients\n{escape(outcome.stock.summary)}\n\nkeyorder\n{escape(outcome.keyorder.summary)}</pre>",
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _keys(count: int) -> str:
    return "key" if count == 1 else "keys"


def _tiles(outcome: Outcome) -> str:
    stock, mine = outcome.stock.figure("reordered_keys"), outcome.keyorder.figure("reordered_keys")
    tiles = (
        (f"{stock:,}", f"{_keys(stock)} out of order with stock clients", "red" if stock else ""),
        (f"{mine:,}", f"{_keys(mine)} out of order with keyorder", "red" if mine else "green"),
        (f"{outcome.keyorder.figure('lost'):,}", "records lost with keyorder", "green" if outcome.kept else "red"),
        (f"{outcome.keyorder.figure('records'):,}", f"records of {outcome.keyorder.figure('keys'):,} keys", ""),
    )
    inner = "".join(
        f"<div class='tile'><b class='{c}'>{n}</b><span>{escape(text)}</span></div>" for n, text, c in tiles
    )
    return f"<div class='tiles'>{inner}</div>"


def _reading() -> str:
    return (
        "<p>One band for each partition, time from left to right. The line is what was written to the partition, the "
        "blue area what its group was given; where blue is missing under the line, or comes after it, the group lagged. "
        "On the right a new partition's blue may begin a little after its line: its records wait until the old home's "
        "records of the moved keys are done with. Red is where a record came after a later one of its own key. "
        "The strip on top is how many records were waiting. A vertical line is where clients begin to use new partitions: "
        "with stock clients at once, with keyorder at the commit of the change, which was asked for where the shade begins.</p>"
    )


def _figures(outcome: Outcome) -> str:
    rows = [
        (label, *(f"{side.figure(name):,}" for side in (outcome.stock, outcome.keyorder))) for label, name in FIGURES
    ]
    legal = (f"{side.legal_duplicates:,}" for side in (outcome.stock, outcome.keyorder))
    rows.append(("redelivered after the kill, as at-least-once allows", *legal))
    return _table(("", "stock clients", "keyorder"), rows)


def _happened(outcome: Outcome, settings: DemoSettings) -> str:
    events = "".join(f"<li>{each.at:.1f} s: {escape(each.text)}</li>" for each in outcome.happenings)
    return (
        f"<p>{settings.writers} writer processes sent the same records, {settings.rate:,} a second for "
        f"{settings.seconds:g} s, to two topics of the same brokers: to one through keyorder's producer, to the other "
        f"through a stock one. A group of {settings.members} consumer processes read each, spending "
        f"{settings.work_ms:g} ms on a record. Both topics grew at the same moments.</p><ol>{events}</ol>"
        f"<p>{escape(KINDNESS)} What it cannot do is hold back a key's records in a new partition until the old "
        "partition's are done.</p>"
        f"<p>Every send, acknowledgement, delivery and commit was recorded by the process that saw it, also by the one "
        f"that was killed. The checker compares these with both topics, read end to end. Seed {outcome.seed}.</p>"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
