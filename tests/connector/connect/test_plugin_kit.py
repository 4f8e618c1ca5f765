"""For authors of plugins: the package that new-plugin makes, its own test, the guide, folders of plugin.path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from keyorder.connector.cli.main import cli
from keyorder.connector.connect.api.errors import NotFoundError
from keyorder.connector.connect.plugin_template import files
from keyorder.connector.connect.runtime.plugins import Plugins
from keyorder.connector.connect.testing import LocalConnect
from keyorder.partitioner.errors import PeerError, UsageError
from support.cluster import KafkaUnderTest
from support.connect_rig import MemorySink, sink

GUIDE = Path(__file__).parents[3] / "docs" / "connect-plugins.md"


@pytest.mark.slow
def test_a_new_package_passes_its_own_test(tmp_path: Path) -> None:
    """On a broker that it starts by itself; the package is not installed."""
    made = CliRunner().invoke(cli, ["connect", "new-plugin", "my-lines", "--directory", str(tmp_path)])
    assert made.exit_code == 0, made.output
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path / "my-lines", capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    assert "1 passed" in found.stdout
    again = CliRunner().invoke(cli, ["connect", "new-plugin", "my-lines", "--directory", str(tmp_path)])
    assert again.exit_code != 0


@pytest.mark.parametrize("name", ["", "1x", "My", "a b", "../x", "class", "a--b"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="no name"):
        files(name)


def test_the_guide_shows_the_files_that_are_made() -> None:
    """Its blocks of Python, in that order."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    made = files("lines")
    assert blocks == [made["lines/source.py"], made["lines/sink.py"], made["tests/test_lines.py"]]


def test_folders_of_plugin_path_are_searched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As `pip install --target` fills them, itself or one below; what has no package is named."""
    for folder, name in (("direct", "PathOne"), ("many/plugin", "PathTwo")):
        place = tmp_path / folder
        info = place / f"{name.lower()}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.lower()}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[keyorder.connectors]\n{name} = {name.lower()}_module:{name}\n")
        text = files("x")["x/sink.py"].replace("XSink", name)
        (place / f"{name.lower()}_module.py").write_text(text)
    with pytest.raises(NotFoundError):
        Plugins().connector("PathOne")
    folders = [str(tmp_path / each) for each in ("direct", "many", "libs/connect-file-4.1.2.jar")]
    before = list(sys.path)
    try:
        plugins = Plugins((), folders)
        assert [plugins.connector(name).__name__ for name in ("PathOne", "PathTwo")] == ["PathOne", "PathTwo"]
        assert plugins.version("connectors", "PathTwo") == "0.1.0"
        assert "connect-file-4.1.2.jar" in caplog.text
    finally:
        sys.path[:] = before


def test_a_plugin_that_cannot_be_loaded_is_told_and_hides_no_other(tmp_path: Path) -> None:
    """Its module raises what it likes: a library that is missing, or that it does not fit."""
    info = tmp_path / "torn-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torn\nVersion: 1\n")
    kinds = ("connectors", "transforms", "predicates", "converters")
    (info / "entry_points.txt").write_text("".join(f"[keyorder.{kind}]\nTorn = torn_module:Torn\n" for kind in kinds))
    (tmp_path / "torn_module.py").write_text("raise OSError('libtorn.so.5: cannot open')\n")
    before = list(sys.path)
    try:
        plugins = Plugins((), [str(tmp_path)])
        for find in (plugins.connector, plugins.transform, plugins.predicate, plugins.converter):
            with pytest.raises(NotFoundError, match=r"Torn.*libtorn\.so\.5"):
                find("Torn")
        shown = {info.name for info in plugins.listed(connectors_only=False)}
    finally:
        sys.path[:] = before
    assert not any("Torn" in name for name in shown)
    assert any("Torn" in name for name in plugins.names("connectors"))
    assert any(name.endswith(".StringConverter") for name in shown)


def test_the_kit_tells_why_a_connector_failed(kafka: KafkaUnderTest, topic_name: str) -> None:
    """In the trace of its task; and its own broker is not needed where there is one."""
    with LocalConnect(MemorySink, bootstrap_servers=kafka.bootstrap_servers) as connect:
        connect.topic(topic_name, 1)
        connect.send(topic_name, [("a", "1"), ("a", "2")])
        connect.run(topic_name, MemorySink, sink(topic_name))
        connect.wait_until_put(topic_name, topic_name)
        assert MemorySink.values(topic_name) == ["1", "2"]
        connect.send(topic_name, [("a", "bad-one")])
        with pytest.raises(PeerError, match="no bad-one here"):
            connect.wait_until_put(topic_name, topic_name)
