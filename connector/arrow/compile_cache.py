"""Where numba keeps what it has compiled: a folder that can be written, also in a container without a home."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_VARIABLE = "XDG_CACHE_HOME"


def prepare() -> None:
    """See that there is a place for compiled code. To be called before the first function is compiled.

    numba takes the folder of a module or else the user's cache folder. Where neither can be written it refuses to compile
    at all, and for a module in an archive it does not even look before it writes. Then each process has a folder of its
    own, gone when it ends: one that others could foresee could be filled with their code.
    """
    home = os.environ.get(_VARIABLE) or os.path.expanduser("~/.cache")
    if _writable(Path(__file__).parent / "__pycache__") or _writable(Path(home) / "numba"):
        return
    own = tempfile.mkdtemp(prefix="keyorder-compiled-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    os.environ[_VARIABLE] = own


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
