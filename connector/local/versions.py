"""Which jars a Kafka version consists of: the lock files beside this module."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .errors import UnknownKafkaVersionError

DEFAULT_KAFKA_VERSION = "4.1.2"

_FOLDER = Path(__file__).parent
_NAME = re.compile(r"kafka-(\d+(?:\.\d+)+)\.lock\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class LockedJar:
    """One jar: its path below a Maven repository, its checksum and its size in bytes."""

    path: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        """The file's own name, unique within one lock."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class KafkaLock:
    """All jars that one Kafka version needs on its class path, in class path order."""

    version: str
    jars: tuple[LockedJar, ...]

    @property
    def size(self) -> int:
        """Bytes to fetch for an empty cache."""
        return sum(jar.size for jar in self.jars)


def lock_path(version: str) -> Path:
    """Where the lock file of `version` is or would be."""
    return _FOLDER / f"kafka-{version}.lock.json"


def known_versions() -> tuple[str, ...]:
    """The Kafka versions that have a lock file, oldest first."""
    found = (_NAME.fullmatch(path.name) for path in _FOLDER.glob("kafka-*.lock.json"))
    versions = [match[1] for match in found if match]
    return tuple(sorted(versions, key=lambda version: [int(part) for part in version.split(".")]))


def load_lock(version: str) -> KafkaLock:
    """The lock of `version`; UnknownKafkaVersionError lists the versions there are."""
    # The name is compared with the list and never joined into a path: it comes from a command line.
    if version not in known_versions():
        raise UnknownKafkaVersionError(
            f"Kafka {version!r} is not among the versions known here: {', '.join(known_versions())}"
        )
    return parse_lock(json.loads(lock_path(version).read_text("utf-8")))


def parse_lock(document: Mapping[str, object]) -> KafkaLock:
    """A lock from its JSON object. ValueError for anything that is not a complete and safe lock."""
    version, entries = document.get("kafka"), document.get("jars")
    if not isinstance(version, str) or not isinstance(entries, list) or not entries:
        raise ValueError("a lock needs 'kafka' (a version) and 'jars' (a list that is not empty)")
    jars = tuple(_parse_jar(entry) for entry in entries)
    if len({jar.name for jar in jars}) != len(jars):
        raise ValueError("two jars of one lock have the same file name")
    return KafkaLock(version, jars)


def _parse_jar(entry: object) -> LockedJar:
    if not isinstance(entry, dict):
        raise ValueError(f"a jar is an object, not {entry!r}")
    path, sha256, size = entry.get("path"), entry.get("sha256"), entry.get("size")
    if not isinstance(path, str) or not path.endswith(".jar") or ".." in path or path.startswith("/"):
        raise ValueError(f"not a path of a jar below a repository: {path!r}")
    if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise ValueError(f"not a sha256: {sha256!r}")
    if not isinstance(size, int) or size <= 0:
        raise ValueError(f"not a size: {size!r}")
    return LockedJar(path, sha256, size)
