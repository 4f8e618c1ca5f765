"""docs/connect.md says what the code says, and its plugin runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from keyorder.connector.connect import SinkRecord
from support.connect_docs import PAGE, page

CONNECTORS = Path(__file__).parents[3] / "connector" / "connect" / "connectors"


def test_the_tables_are_those_of_the_code() -> None:
    """`make docs` has nothing to change."""
    assert page(PAGE.read_text()) == PAGE.read_text()


def test_the_example_of_a_plugin_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands on the page."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, type] = {}
    exec(found[1], names)
    connector = names["PrintSink"]()
    connector.start({"prefix": "*"})
    task = connector.task_class()()
    task.start(connector.task_configs(1)[0])
    task.put([SinkRecord(topic="t", key="k", value="v")])
    assert capsys.readouterr().out == "* k v\n"


@pytest.mark.parametrize("path", sorted(CONNECTORS.glob("*.py")), ids=lambda path: path.name)
def test_a_built_in_connector_is_short(path: Path) -> None:
    """An example to copy has less than 200 lines."""
    assert len(path.read_text().splitlines()) < 200
