"""The tables of our settings in docs/configuration.md, from the code: `make docs`."""

from __future__ import annotations

from pathlib import Path

from keyorder.connector.settings import CONSUMER, PRODUCER, Table, markdown
from support.generated import main

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
    main(PAGE, page)
