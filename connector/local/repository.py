"""Where jars come from and where they are kept."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import MissingExtraError

CACHE_DIR_VARIABLE = "KEYORDER_CACHE_DIR"
REPOSITORY_VARIABLE = "KEYORDER_MAVEN_URL"


def repository_url() -> str:
    """The Maven repository: KEYORDER_MAVEN_URL, else Maven Central as the `jgo` package names it."""
    chosen = os.environ.get(REPOSITORY_VARIABLE)
    if chosen:
        return chosen.rstrip("/")
    try:
        from jgo.constants import MAVEN_CENTRAL_URL
    except ImportError:
        raise MissingExtraError(
            "a local Kafka is fetched with the help of the 'jgo' package, which is not installed: "
            f"pip install 'keyorder[local]', or name a Maven repository in {REPOSITORY_VARIABLE}"
        ) from None
    return str(MAVEN_CENTRAL_URL).rstrip("/")


def cache_dir() -> Path:
    """KEYORDER_CACHE_DIR, else `keyorder` in the user's cache folder. Not created here."""
    chosen = os.environ.get(CACHE_DIR_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return _user_folder("XDG_CACHE_HOME", ".cache") / "keyorder"


def state_dir() -> Path:
    """`keyorder` in the user's state folder: what must outlive a command. Not created here."""
    return _user_folder("XDG_STATE_HOME", ".local/state") / "keyorder"


def kafka_dir(version: str) -> Path:
    """The cache folder of one Kafka version."""
    return cache_dir() / f"kafka-{version}"


def _user_folder(variable: str, fallback: str) -> Path:
    named = os.environ.get(variable, "")
    # The XDG specification: a relative path in these variables is invalid and to be ignored.
    return Path(named) if os.path.isabs(named) else Path.home() / fallback
