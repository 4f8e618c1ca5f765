"""examples/stateful_order.ipynb runs as it stands, and shows what it says."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from support.cluster import KafkaUnderTest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "stateful_order.ipynb"


@pytest.mark.timeout(600)
def test_the_notebook_runs(kafka: KafkaUnderTest, tmp_path: Path) -> None:
    """Both counts are printed, the one of keyorder is 0, and there is a picture."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    environment = {
        **os.environ,
        "KEYORDER_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(tmp_path),
    }
    NotebookClient(notebook, timeout=500, kernel_name="python3").execute(cwd=str(tmp_path), env=environment)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert "keyorder: 0 of 1800 rows out of order" in printed
    assert "kafka: " in printed
    assert any("image/png" in output.get("data", {}) for output in outputs)
    if os.environ.get("KEYORDER_SAVE_NOTEBOOK"):
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        nbformat.write(notebook, NOTEBOOK)
