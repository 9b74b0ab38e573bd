"""The errors that the documents list are what a user reads: each is brought about, and has those words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.test_blocks import ROOT
from tests.live_notebook import Notebook

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
    "were killed by SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "CUDA out of memory": "torch.empty(2**50, device='cuda')",
    "Expected to have finished reduction in the prior iteration": """
    accelerator, model = Accelerator(), Half()
    model = accelerator.prepare(model)
    for _ in range(2):
        accelerator.backward(model(torch.ones(1, 2)).sum())""",
    "belongs to a prepared model, so it would train none of them": """
    Accelerator().prepare(nn.Linear(2, 2), torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1))""",
    "gather needs tensors of the same shapes and types on all ranks": """
    accelerator = Accelerator()
    accelerator.gather(torch.ones(accelerator.process_index + 1))""",
    "the ranks divide different samples": """
    accelerator = Accelerator()
    data = torch.utils.data.random_split(range(8), [4, 4], torch.Generator().manual_seed(accelerator.process_index))[0]
    for _ in accelerator.prepare(torch.utils.data.DataLoader(data)): pass
    accelerator.wait_for_everyone()""",
    "No module named": "import a_module_that_is_not_there",
    "but this process already has an Accelerator": "Accelerator(); Accelerator(mixed_precision='bf16')",
    "needs a GPU, but this rank runs on the CPU: use 'bf16'": "Accelerator(mixed_precision='fp16')",
    "trying to initialize the default process group twice": "Accelerator(); dist.init_process_group('gloo')",
    "did not finish within": "time.sleep(60)",
    "there is nobody to ask": "input()",
}
"""The body of a function that ends so, by what `docs/troubleshooting.md` quotes of its error."""
OPTIONS = {
    "did not finish within": ", timeout=1",
    "CUDA out of memory": ", gpus=[0]",
    "there is nobody to ask": ", block=False",
}
"""What else the launch has to be told."""
NEEDS_NO_GPU = "GPUs were requested, but torch cannot use any on this machine"
STALLS = "rank 0 waits in all_reduce"


@pytest.fixture
def notebook(notebook: Notebook) -> Notebook:
    notebook.check(PRELUDE)
    return notebook


def quoted(page: Path) -> list[str]:
    """The texts in a page's table of them."""
    _, _, rest = page.read_text().partition("| the text |")
    table, _, _ = rest.partition("\n\n")
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    return [row.split("`")[-2].removesuffix(" …") for row in rows]


def test_each_that_the_page_lists_is_brought_about() -> None:
    assert set(quoted(ROOT / "docs" / "troubleshooting.md")) == {*BROUGHT_ABOUT, NEEDS_NO_GPU, STALLS}


@pytest.mark.parametrize("text", BROUGHT_ABOUT)
def test_an_error_reads_so(text: str, notebook: Notebook) -> None:
    options = OPTIONS.get(text, "")
    if "gpus" not in options:
        options += ", device='cpu', num_processes=2"
    elif not notebook.value("torch.cuda.is_available()"):
        pytest.skip("there is no GPU")
    wait = ".result()" if "block" in options else ""
    cell = notebook.run(f"def train():\n    {BROUGHT_ABOUT[text].strip()}\n\nnotebook_launcher(train{options}){wait}")
    assert text in cell.error_text or f"UserWarning: {text}" in cell.stderr


def test_a_gpu_that_is_not_there_is_named(notebook: Notebook) -> None:
    if notebook.value("torch.cuda.is_available()"):
        pytest.skip("there is a GPU")
    cell = notebook.run("notebook_launcher(print, gpus=[0])")
    assert NEEDS_NO_GPU in cell.error_text


def test_ranks_that_wait_for_ever_are_shown(notebook: Notebook) -> None:
    cell = notebook.check("""
    def train():
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1))
        time.sleep(1000)

    job = notebook_launcher(train, num_processes=2, device="cpu", block=False, stall_after=0.5)
    """)
    notebook.read_until(cell, STALLS)
    assert "no progress for" in cell.text
    assert "stalled" in cell.bundles[-1]["text/html"]
    notebook.check("job.cancel()\njob.wait()")
