"""A page of the documents with parts that are made: rewritten with `--write`, else compared."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def main(page: Path, made: Callable[[str], str]) -> None:
    """Exits with an error where the page is not up to date. made: today's page of the page as it stands."""
    text = page.read_text(encoding="utf-8")
    if "--write" in sys.argv:
        page.write_text(made(text), encoding="utf-8")
    elif made(text) != text:
        sys.exit(f"{page.name} is not up to date: run make docs")
