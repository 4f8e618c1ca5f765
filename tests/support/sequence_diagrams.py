"""The sequence diagrams of docs/concepts.md, drawn as SVG from what happens step by step.

python tests/support/sequence_diagrams.py --write
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[2] / "docs" / "images"
# In the units of the picture: its width, what lies left and right of the lifelines, a line of text, letters per unit.
WIDTH, SIDE, LINE, LETTER = 960, 96, 17, 7.2
_STYLE = """
  .back { fill: #ffffff; stroke: #d0d7de; }
  .who { fill: #f3f5f8; stroke: #a9b4c0; }
  .name { font-size: 14px; font-weight: 700; fill: #1f2328; text-anchor: middle; }
  .life { stroke: #c9d1da; stroke-width: 1.5; stroke-dasharray: 4 4; }
  .phase { fill: #eef4ff; }
  .title { font-size: 13px; font-weight: 700; fill: #2f6feb; }
  .said { font-size: 13px; fill: #1f2328; text-anchor: middle; }
  .way { stroke: #57606a; stroke-width: 1.6; }
  .seen { stroke-dasharray: 5 4; }
  .note { fill: #fbf3dc; stroke: #d4b75f; }
"""


@dataclass(frozen=True)
class Phase:
    """A line across, with a name."""

    name: str


@dataclass(frozen=True)
class Says:
    """An arrow. read: the receiver reads it, rather than being sent it: the arrow is dashed."""

    source: str
    target: str
    text: str
    read: bool = False


@dataclass(frozen=True)
class Does:
    """What somebody does by himself."""

    who: str
    text: str


@dataclass(frozen=True)
class Diagram:
    """Who takes part, from left to right, and what happens, from top to bottom."""

    name: str
    title: str
    description: str
    who: Sequence[str]
    steps: Sequence[Phase | Says | Does] = field(default_factory=tuple)


CHANGE = Diagram(
    "change",
    "A change from 4 to 6 partitions",
    "The controller announces a plan, every writer shows that it lives, writers hold records of moving keys and say READY, the "
    "controller notes the cuts and commits the epoch, and the held records go to the new partitions.",
    ("Controller", "_keyorder", "Writers", "_keyorder_writers", "Topic"),
    (
        Phase("PLAN: nobody waits yet"),
        Says("Controller", "_keyorder", "PLAN: 6 partitions"),
        Says("Controller", "Topic", "partitions 4, 5 made"),
        Says("_keyorder", "Writers", "PLAN", read=True),
        Says("Writers", "_keyorder_writers", "lease renewed"),
        Says(
            "_keyorder_writers", "Controller", "all writers are alive; one whose lease is over is expelled", read=True
        ),
        Phase("PREPARE: records of moving keys are held"),
        Says("Controller", "_keyorder", "PREPARE"),
        Says("_keyorder", "Writers", "PREPARE", read=True),
        Does("Writers", "hold moving keys; other keys flow"),
        Says("Topic", "Writers", "what was sent of moving keys is acknowledged"),
        Says("Writers", "_keyorder_writers", "READY"),
        Says("_keyorder_writers", "Controller", "all writers are READY", read=True),
        Says("Topic", "Controller", "the cuts: the ends of partitions 0, 1, 4 and 5", read=True),
        Phase("COMMIT: the layout has changed"),
        Says("Controller", "_keyorder", "epoch 1 with its cuts"),
        Says("_keyorder", "Writers", "epoch 1", read=True),
        Says("Writers", "Topic", "held records, to partitions 4 and 5"),
    ),
)
HAND_OVER = Diagram(
    "hand-over",
    "A key's hand-over from partition 0 to partition 4",
    "The reader of partition 4 holds a key's record 2 until the group has committed partition 0 up to the cut, "
    "behind which record 1 was processed.",
    ("Partition 0", "Reader of 0", "The group's offsets", "Reader of 4", "Partition 4"),
    (
        Phase("Epoch 1 is committed: partition 0 ends for the key at offset 1042"),
        Says("Partition 4", "Reader of 4", "record 2, offset 0", read=True),
        Does("Reader of 4", "gate closed: waits for 0 up to 1042"),
        Says("The group's offsets", "Reader of 4", "0 is at 980", read=True),
        Says("Partition 0", "Reader of 0", "record 1, offset 1041", read=True),
        Does("Reader of 0", "processes record 1"),
        Says("Reader of 0", "The group's offsets", "commit: 0 is at 1042"),
        Phase("The group has processed partition 0 up to the cut"),
        Says("The group's offsets", "Reader of 4", "0 is at 1042", read=True),
        Does("Reader of 4", "gate open: processes record 2"),
        Says("Reader of 4", "The group's offsets", "commit: 4 is at 1"),
    ),
)
DIAGRAMS = (CHANGE, HAND_OVER)


def wrapped(text: str, width: float) -> list[str]:
    """The text in lines that are no wider than that, one word at least in each."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and len(longer) * LETTER > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


class Drawing:
    """One diagram being drawn, downwards."""

    def __init__(self, diagram: Diagram) -> None:
        step = (WIDTH - 2 * SIDE) / (len(diagram.who) - 1)
        self.column = {who: SIDE + i * step for i, who in enumerate(diagram.who)}
        self.step, self.y = step, 62.0
        self.parts: list[str] = []
        for each in diagram.steps:
            if isinstance(each, Phase):
                self.phase(each)
            elif isinstance(each, Says):
                self.says(each)
            else:
                self.does(each)

    def lines(self, x: float, texts: Sequence[str], kind: str) -> None:
        """Text, one line beneath the other."""
        for text in texts:
            self.y += LINE
            self.parts.append(f'<text class="{kind}" x="{x:g}" y="{self.y:g}">{escape(text, quote=False)}</text>')

    def phase(self, phase: Phase) -> None:
        self.y += 14
        self.parts.append(
            f'<rect class="phase" x="12" y="{self.y:g}" width="{WIDTH - 24}" height="{LINE + 10}" rx="4"/>'
        )
        self.y += 2
        self.lines(22, [phase.name], "title")
        self.y += 10

    def says(self, says: Says) -> None:
        begin, end = self.column[says.source], self.column[says.target]
        self.y += 4
        # A label stands between two lifelines: one that an arrow crosses does not go through it.
        nearest = end + self.step if end < begin else end - self.step
        middle = (nearest + end) / 2
        self.lines(middle, wrapped(says.text, self.step - 16), "said")
        self.y += 7
        kind = "way seen" if says.read else "way"
        tip = end + 3 if end < begin else end - 3
        self.parts.append(
            f'<line class="{kind}" x1="{begin:g}" y1="{self.y:g}" x2="{tip:g}" y2="{self.y:g}" marker-end="url(#tip)"/>'
        )

    def does(self, does: Does) -> None:
        texts = wrapped(does.text, self.step - 30)
        x, height = self.column[does.who], len(texts) * LINE + 9
        self.y += 9
        width = self.step - 16
        self.parts.append(
            f'<rect class="note" x="{x - width / 2:g}" y="{self.y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
        )
        self.lines(x, texts, "said")
        self.y += 11


def svg(diagram: Diagram) -> str:
    """The picture."""
    drawing = Drawing(diagram)
    height = drawing.y + 26
    heads = []
    for who, x in drawing.column.items():
        width = drawing.step - 20
        heads += [
            f'<line class="life" x1="{x:g}" y1="54" x2="{x:g}" y2="{height - 14:g}"/>',
            f'<rect class="who" x="{x - width / 2:g}" y="20" width="{width:g}" height="34" rx="6"/>',
            f'<text class="name" x="{x:g}" y="42">{escape(who, quote=False)}</text>',
        ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
            'role="img" aria-labelledby="title desc" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">',
            f'<title id="title">{escape(diagram.title, quote=False)}</title>',
            f'<desc id="desc">{escape(diagram.description, quote=False)}</desc>',
            f"<style>{_STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0 8 4 0 8z" fill="#57606a"/></marker></defs>',
            f'<rect class="back" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1:g}" rx="10"/>',
            *heads,
            *drawing.parts,
            "</svg>\n",
        ]
    )


def path(diagram: Diagram) -> Path:
    """Where its picture lies."""
    return IMAGES / f"sequence-{diagram.name}.svg"


if __name__ == "__main__":
    for each in DIAGRAMS:
        if "--write" in sys.argv:
            path(each).write_text(svg(each))
        elif not path(each).exists() or path(each).read_text() != svg(each):
            raise SystemExit(f"{path(each).name} is not what its steps draw: make docs")
