"""Optional dependencies: what an import that fails says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """A module that is missing in this block is named together with the extra that brings it (ModuleNotFoundError)."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.name} is not installed: pip install 'keyorder[{extra}]'", name=error.name
        ) from error
