"""What README and the examples launch can be launched on a machine with no GPU, with one, and with several."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from notebook_accel.config.call_arguments import from_call
from notebook_accel.config.layers import merge
from notebook_accel.hardware import Device
from notebook_accel.launch import engines
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from tests.documents import blocks
from tests.hardware.fakes import fake_hardware
from tests.live_notebook import Notebook

ROOT = Path(__file__).parents[2]
FIRST = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "hosted-notebooks.md"]
"""Where nobody should have to know what the machine has: no launch names a number, nor a device."""
OTHERS = [path for path in sorted((ROOT / "examples").glob("*.ipynb")) if not path.stem.startswith("08_")]
"""08 is of two machines."""
FIRST += [path for path in OTHERS if path.stem.startswith(("01_", "02_", "03_"))]
MACHINES = {
    count: fake_hardware([Device("H100", f"GPU-{index}", 2**36) for index in range(count)]) for count in (0, 1, 2, 8)
}
"""By the number of their GPUs."""


def cells(page: Path) -> Iterator[str]:
    if page.suffix == ".md":
        yield from (block.code for block in blocks.read(page) if block.kind == "python")
    else:
        found = nbformat.read(page, as_version=4).cells
        yield from (cell.source for cell in found if cell.cell_type == "code")


def launches(page: Path) -> list[dict[str, Any]]:
    """What each launch of a page asks for, by the names of `notebook_launcher`'s arguments."""
    found: list[dict[str, Any]] = []
    for source in cells(page):
        if source.startswith("%%accelerate"):
            number = re.search(r"(?:-n|--num-processes)[ =](\d+)", source.partition("\n")[0])
            found.append({"num_processes": int(number[1])} if number else {})
            continue
        code = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines())
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "notebook_launcher":
                given = {word.arg: word.value for word in node.keywords if word.arg not in ("args", "kwargs", None)}
                found.append({str(name): ast.literal_eval(value) for name, value in given.items()})
    return found


def planned(asked: dict[str, Any], gpus: int) -> Plan:
    return plan.make(merge([from_call(asked)]), MACHINES[gpus], engines.get("forkserver"))


@pytest.mark.parametrize("gpus", MACHINES)
@pytest.mark.parametrize("page", [*FIRST[:3], *OTHERS], ids=lambda page: page.stem)
def test_each_launch_fits_the_machine(page: Path, gpus: int) -> None:
    found = launches(page)
    assert found, "it launches nothing"
    for asked in found:
        assert planned(asked, gpus).size >= 1


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.stem)
def test_a_first_cell_takes_what_there_is_and_says_so(page: Path) -> None:
    for asked in launches(page):
        made = {gpus: planned(asked, gpus) for gpus in MACHINES}
        assert {gpus: (each.size, each.device) for gpus, each in made.items()} == {
            0: (2, "cpu"),
            1: (1, "cuda"),
            2: (2, "cuda"),
            8: (8, "cuda"),
        }
        assert made[0].notice == "No GPU found; using 2 CPU processes (change with num_processes)"
        assert made[1].notice == "One GPU found; using 1 process (with gpus=[0, 0], two share it)"
        assert [(made[gpus].device_text, made[gpus].notice) for gpus in (2, 8)] == [("2 × H100", ""), ("8 × H100", "")]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "examples" / "01_first_launch.ipynb"], ids=lambda page: page.stem
)
def test_what_happens_on_one_gpu_is_explained(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"one GPU, (it starts|that is) one process; pass `gpus=\[0, 0\]` to have two", text)
    shared = planned({"gpus": [0, 0]}, 1)
    assert (shared.size, shared.device, shared.backend) == (2, "cuda", "gloo")


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_cells_of_the_readme_run_on_one_rank_and_on_two(ranks: int, notebook: Notebook) -> None:
    """On the CPU, as on so many GPUs."""
    notebook.check(f"os.environ['NOTEBOOK_ACCEL_NUM_PROCESSES'] = '{ranks}'")
    try:
        said = []
        for block in blocks.read(ROOT / "README.md"):
            if block.kind == "python":
                if block.before:
                    notebook.check(block.before)
                said.append(notebook.check(block.code))
    finally:
        notebook.check("import os\ndel os.environ['NOTEBOOK_ACCEL_NUM_PROCESSES']")
    assert said[0].value == ("[tensor(0.)]" if ranks == 1 else "[tensor(10.), tensor(10.)]")
    assert said[0].text.count("hello from rank ") == ranks
