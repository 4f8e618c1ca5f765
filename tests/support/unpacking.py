"""Unpacking archives."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: str | Path) -> None:
    """As by filter="data", which Debian 12's Python does not know yet: there the attribute is ignored."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)
