"""The files of a new plugin package: a source and a sink that work, with a test on a real broker."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from ...partitioner.errors import ConfigError, UsageError

_FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$project"
version = "0.1.0"
dependencies = ["keyorder[connect]"]

[project.optional-dependencies]
test = ["keyorder[connect,local,jre]", "pytest"]

[project.entry-points."keyorder.connectors"]
${name}Source = "$module.source:${name}Source"
${name}Sink = "$module.sink:${name}Sink"

[tool.setuptools]
packages = ["$module"]

[tool.pytest.ini_options]
pythonpath = ["."]
""",
    "README.md": """\
# $project

Connectors for keyorder: `${name}Source` counts, `${name}Sink` writes lines to a file.

    pip install -e '.[test]'
    pytest

An installed package is found by its entry points. Without installing it into the worker's environment: `pip install --target
/opt/plugins/$module .`, and `plugin.path=/opt/plugins` in the worker's properties.
""",
    "$module/__init__.py": "",
    "$module/source.py": """\
from keyorder.connector.connect import ConfigDef, SourceConnector, SourceRecord, SourceTask


class ${name}Source(SourceConnector):
    version = "0.1.0"

    @classmethod
    def config(cls):
        return (
            ConfigDef()
            .define("topic", "STRING", importance="HIGH", documentation="Where the numbers go.")
            .define("keys", "LIST", ["a", "b", "c"], documentation="What is counted.")
            .define("last", "INT", 100, documentation="The last number of each key.")
        )

    @classmethod
    def task_class(cls):
        return ${name}SourceTask

    def start(self, config):
        self.given = config

    def task_configs(self, max_tasks):
        return [self.given]  # one task: two would write each number twice


class ${name}SourceTask(SourceTask):
    def start(self, config):
        self.options = ${name}Source.config().parse(config)
        stored = self.context.offset_storage_reader
        self.done = {key: (stored.offset({"key": key}) or {"done": 0})["done"] for key in self.options["keys"]}

    def poll(self):
        due = [key for key, done in self.done.items() if done < self.options["last"]]
        if not due:
            self.context.wait(1.0)  # ends at once when the task is stopped
        return [self.record(key) for key in due]

    def record(self, key):
        self.done[key] += 1
        place = {"source_partition": {"key": key}, "source_offset": {"done": self.done[key]}}  # where to go on after it
        return SourceRecord(topic=self.options["topic"], key=key, value=str(self.done[key]), **place)
""",
    "$module/sink.py": """\
import os

from keyorder.connector.connect import ConfigDef, SinkConnector, SinkTask


class ${name}Sink(SinkConnector):
    version = "0.1.0"

    @classmethod
    def config(cls):
        return ConfigDef().define("file", "STRING", importance="HIGH", documentation="Lines are added to it.")

    @classmethod
    def task_class(cls):
        return ${name}SinkTask

    def start(self, config):
        self.given = config

    def task_configs(self, max_tasks):
        return [self.given]  # one task: two would write into each other's lines


class ${name}SinkTask(SinkTask):
    def start(self, config):
        self.file = open(${name}Sink.config().parse(config)["file"], "a", encoding="utf-8")

    def put(self, records):  # each key's records, in order
        self.file.writelines(f"{record.key} {record.value}\\n" for record in records)

    def flush(self, offsets):  # when this returns, what was put is durable
        self.file.flush()
        os.fsync(self.file.fileno())

    def stop(self):
        self.file.close()
""",
    "tests/test_$module.py": """\
from collections import defaultdict

from keyorder.connector.connect.testing import LocalConnect
from $module.sink import ${name}Sink
from $module.source import ${name}Source


def test_each_keys_numbers_arrive_in_order_while_the_topic_grows(tmp_path):
    lines = tmp_path / "lines.txt"
    with LocalConnect(${name}Source, ${name}Sink) as connect:
        connect.topic("numbers", 2)
        connect.run("sink", ${name}Sink, {"topics": "numbers", "file": str(lines)})
        connect.run("source", ${name}Source, {"topic": "numbers", "last": "200"})
        connect.topic("numbers", 3)
        connect.records("numbers", 600)
        connect.wait_until_put("sink", "numbers")

    found = defaultdict(list)
    for line in lines.read_text().splitlines():
        key, number = line.split()
        found[key].append(int(number))
    assert found == {key: list(range(1, 201)) for key in "abc"}
""",
}


def files(name: str) -> dict[str, str]:
    """Path below the package's folder -> text. name: as in `my-lines`. Raises UsageError for one that is no name."""
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise UsageError(f"{name!r} is no name for a package: use small letters, digits and hyphens, a letter first")
    words = {
        "project": name,
        "module": module,
        "name": "".join(part.capitalize() for part in module.split("_")),
    }
    return {Template(path).substitute(words): Template(text).substitute(words) for path, text in _FILES.items()}


def write(name: str, folder: Path) -> list[Path]:
    """Make the package in a folder of its name below `folder`.

    Raises UsageError if that is there already, ConfigError if it cannot be written.
    """
    made, target = files(name), folder / name
    try:
        if target.exists():
            raise UsageError(f"{target} is there already: give another name or --directory")
        for path, text in made.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"{target} cannot be written ({error.strerror or type(error).__name__})"
        raise ConfigError("--directory", problem, "name another folder") from error
    return [target / path for path in made]
