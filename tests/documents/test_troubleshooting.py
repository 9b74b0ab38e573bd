"""The errors that the README lists are what a user reads: each is brought about, and begins with those words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.documents.test_blocks import ROOT
from tests.kernel.conftest import end
from tests.notebook import Notebook

PRELUDE = """
from notebook_accel import *
import os, signal, threading, time
import torch
import torch.distributed as dist
from torch import nn

lock = threading.Lock()

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
    def forward(self, inputs):
        return self.used(inputs)
"""
BROUGHT_ABOUT = {
    "can't be sent to the ranks: it uses": "lock.acquire()",
    "killed by SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "Expected to have finished reduction": """
    accelerator, model = Accelerator(), Half()
    model = accelerator.prepare(model)
    for _ in range(2):
        accelerator.backward(model(torch.ones(1, 2)).sum())""",
    "belongs to a prepared model, so it would train nothing": """
    Accelerator().prepare(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1))""",
    "gather needs tensors of the same shapes": """
    accelerator = Accelerator()
    accelerator.gather(torch.ones(accelerator.process_index + 1))""",
    "No module named": "import a_module_that_is_not_there",
    "this process already has an Accelerator": "Accelerator(); Accelerator(mixed_precision='bf16')",
    "needs a GPU, and this rank runs on the CPU": "Accelerator(mixed_precision='fp16')",
    "did not finish within": "time.sleep(60)",
}
NEEDS_NO_GPU = "torch can use none here"


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    found = Notebook()
    found.check(PRELUDE)
    yield found
    end(found, within=30)


def listed() -> list[str]:
    """The texts in the README's table."""
    _, _, rest = (ROOT / "README.md").read_text().partition("| the text |")
    table, _, _ = rest.partition("\n\n")
    return [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]


def test_each_that_is_listed_is_brought_about() -> None:
    assert set(listed()) == {*BROUGHT_ABOUT, NEEDS_NO_GPU}
    assert len(listed()) >= 10


@pytest.mark.parametrize("text", BROUGHT_ABOUT)
def test_an_error_reads_so(text: str, notebook: Notebook) -> None:
    body = BROUGHT_ABOUT[text].strip()
    timeout = ", timeout=1" if "finish" in text and "within" in text else ""
    cell = notebook.run(f"def train():\n    {body}\n\nnotebook_launcher(train, num_processes=2, device='cpu'{timeout})")
    assert text in cell.error_text


def test_a_gpu_that_is_not_there_is_named(notebook: Notebook) -> None:
    if notebook.value("torch.cuda.is_available()"):
        pytest.skip("there is a GPU")
    cell = notebook.run("notebook_launcher(print, gpus=[0])")
    assert NEEDS_NO_GPU in cell.error_text
