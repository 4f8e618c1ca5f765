"""The tables of our settings in docs/configuration.md, from the code: `python tests/support/config_tables.py --write`."""

from __future__ import annotations

import sys
from pathlib import Path

from keyorder.connector.settings import CONSUMER, PRODUCER, Table, markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
TABLES = {"OrderedProducer": PRODUCER, "OrderedConsumer": CONSUMER}


def page(text: str) -> str:
    """The page with today's tables, each below its heading. What both clients take stands in the first one alone."""
    told: set[str] = set()
    for heading, table in TABLES.items():
        before, _, rest = text.partition(f"\n## {heading}\n\n| option |")
        after = rest.partition("\n\n")[2]
        text = f"{before}\n## {heading}\n\n{_rows(table, told)}\n\n{after}"
    return text


def _rows(table: Table, told: set[str]) -> str:
    shown = [setting for setting in table.values() if setting.meaning not in told]
    told.update(setting.meaning for setting in shown)
    return markdown(shown)


if __name__ == "__main__":
    made = page(PAGE.read_text(encoding="utf-8"))
    if "--write" in sys.argv:
        PAGE.write_text(made, encoding="utf-8")
    elif made != PAGE.read_text(encoding="utf-8"):
        sys.exit(f"{PAGE.name} is not up to date: python {sys.argv[0]} --write")
