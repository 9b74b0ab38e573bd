"""The example for Colab and Kaggle runs as it is written, and what it shows is what it says."""

import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

EXAMPLE = Path(__file__).parents[2] / "examples/03_colab_tpu.ipynb"


def said(cell: nbformat.NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs if output.output_type == "stream")


@pytest.mark.nightly
def test_the_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long: what the ranks compute is compiled."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_DEVICE", "tpu")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:
        config = Config(KernelManager={"transport": "ipc", "connection_file": f"{folder}/kernel.json"})
        NotebookClient(notebook, timeout=110, resources={"metadata": {"path": folder}}, config=config).execute()
    ran = {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}
    saved = {cell.id: cell for cell in nbformat.read(EXAMPLE, as_version=4).cells if cell.cell_type == "code"}
    for cells in (ran, saved):
        assert "ranks: 1 device: xla" in said(cells["launch"])
        assert "epoch 3: loss" in said(cells["launch"])
        assert said(cells["back"]) == "better than chance: True\n"
        assert "torch_xla on the CPU" in cells["look"].outputs[0]["data"]["text/plain"]
