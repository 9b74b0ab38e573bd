"""The examples, each run in a kernel of its own, from an empty folder, as a reader does."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "02_cells_on_every_rank": ["[0] (0, 1.0)\n[1] (1, 1.0)", "(change with -n)", "True"],
    "04_fine_tuning": ["gradients of 2 batches", "was killed by SIGKILL", "resuming from killed/checkpoint_", "True"],
    "05_fsdp2": ["'whole'", "(Shard(dim=0),)", "wrote 28 tensors", "% of 200 rows are sorted"],
    "06_plain_torch": ["differ by at most 0", "[12.0, 12.0]", "[120.0, 120.0]", "rank 1 of 2 raised AttributeError"],
}
"""What their outputs must hold. (01 is run by `scripts/demo`, 07 by the tests of frameworks.)"""
RECIPES = {
    "diffusers": ["the ranks agree: True", "the adapter has learned them: True"],
    "generation": ["'100 of 100 answers are right'", "3+7= 10", "True"],
    "grpo": ["the mean reward rose: True; ", "% of the answers are right"],
    "images": ["the ranks agree: True; ", "% of new images are right"],
    "lightning": ["the ranks agree: True, after 200 steps", "accuracy on new points: 100%", "rank 1  done"],
    "lora": ["with the adapter: 100%", "differences without it: ", "sums without it: 100%"],
    "sft": ["9+9=18; 100 of 100 answers are right"],
    "streaming": ["400 and 400 rows, 800 different ones", "was killed by SIGKILL", "the same ones: True", "True"],
}
"""What those of `recipes/` must hold, which the tests of frameworks run."""
NIGHTLY = ("05_fsdp2", "06_plain_torch")
"""Those of which every line has a test elsewhere."""
OURS = (tempfile.gettempdir() + "/", f"{Path.home()}/", str(EXAMPLES.parent))
"""Beginnings of paths that tell where an example was run."""


SAVED = {
    **SAID,
    **RECIPES,
    "01_first_launch": ["rank 1: accuracy 9", "lr 0.001: accuracy 9"],
    "02_cells_on_every_rank": [*SAID["02_cells_on_every_rank"], "In[5], line 3, in <module>", "In[7] on 2 ranks: done"],
    "04_fine_tuning": [*SAID["04_fine_tuning"], "% are correct after fine-tuning, 7"],
    "03_colab_tpu": ["ranks: 1 device: xla", "better than chance: True"],
    "07_any_framework": ["train_transformer() on 2 ranks: done", "[(2, 0.8"],
    "08_two_machines": ["% of the new digits are read right", "[0, 10, 20, 30]", "raised ValueError: no data on this"],
}
"""What stands in the outputs that they are saved with."""


def text(notebook: nbformat.NotebookNode) -> str:
    """All that its outputs say in words."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    said = [output.get("text") or output.get("evalue") or output["data"].get("text/plain", "") for output in outputs]
    return "\n".join(said)


def execute(name: str, folder: Path, *, timeout: int) -> str:
    """Runs one from top to bottom; returns what its outputs say."""
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.get("outputs", []).clear()
    NotebookClient(
        notebook,
        timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        config=Config(KernelManager={"transport": "ipc", "connection_file": f"{folder}/kernel.json"}),
    ).execute()
    return text(notebook)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly if name in NIGHTLY else []) for name in SAID]
)
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It trains as a reader's would, in a kernel of its own."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # for `!notebook-accel`
    said = execute(name, tmp_path, timeout=120)
    assert [words for words in SAID[name] if words not in said] == []
    assert "Warning" not in said


def launch(*arguments: str | Path, cwd: Path) -> list[str]:
    """Runs `notebook-accel launch`; returns the lines that it prints."""
    command = [sys.executable, "-m", "notebook_accel", "launch", "--cpu", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_script_learns_on_two_ranks_as_the_file_says(tmp_path: Path) -> None:
    """Three processes import torch, two of them FSDP, and it trains."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("num_processes: 2\ndistributed_type: FSDP\nmixed_precision: bf16\n")
    out = tmp_path / "out"
    lines = launch("--config_file", settings, EXAMPLES / "train.py", "--epochs", "2", "--save", out, cwd=tmp_path)
    assert lines[-1].startswith("epoch 2: ")
    assert float(lines[-1].split()[2].rstrip("%")) > 70
    assert (out / "model.safetensors").is_file()


@pytest.mark.nightly
def test_the_example_with_persistent_ranks_runs_on_ranks_that_run_all_of_it(tmp_path: Path) -> None:
    """Two ranks train a model, and compile nothing, but import torch and scikit-learn."""
    assert launch("--num_processes=2", EXAMPLES / "02_cells_on_every_rank.ipynb", cwd=tmp_path)[-2:] == ["True", "True"]


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.ipynb")), ids=lambda file: file.stem)
def test_the_outputs_that_it_is_saved_with_are_there(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in cells]
    assert counts == list(range(1, len(cells) + 1)), "it was not run from top to bottom"
    said = text(notebook)
    assert [words for words in SAVED[file.stem] if words not in said] == []
    assert "Warning" not in said
    assert not any(place in str(cell.outputs) for cell in cells for place in OURS)
