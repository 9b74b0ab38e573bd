"""`%accelerate resume`: a kernel is killed in the middle of a training, and another continues it from disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live_notebook import Notebook, wait_until

IMPORTS = "from notebook_accel import *; import torch, time\n"
TRAIN = """
RATE = 0.1

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)

    def forward(self, inputs):
        return self.inner(inputs)

def loss_of(outputs):
    return outputs.square().sum()

def train(go, epochs=2):
    import os
    set_seed(5)
    accelerator = Accelerator()
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    data = torch.utils.data.TensorDataset(torch.randn(20, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=1, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for epoch in accelerator.epochs(epochs):
        for (inputs,) in loader:
            accelerator.backward(loss_of(model(inputs)))
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == 8 and not os.path.exists(go):
                print("waiting", flush=True)
                time.sleep(600)
    return steps, accelerator.unwrap_model(model).inner.weight.detach().tolist()
"""


class Killed:
    """A notebook whose kernel was killed in the middle of a training."""

    def __init__(self, notebook: Notebook, folder: Path) -> None:
        self.notebook = notebook
        self.folder = folder
        self.go = folder.parent / "go"
        """A file; without it, the training waits at its eighth step."""

    def launch(self, **options: Any) -> str:
        settings = {"num_processes": 2, "device": "cpu", "checkpoint": str(self.folder), "every": 3, "keep": 2}
        written = ", ".join(f"{name}={value!r}" for name, value in {**settings, **options}.items())
        return f"notebook_launcher(train, ({str(self.go)!r},), {written})"

    def kill(self, launch: str) -> None:
        """Launches, and kills the kernel once there is a checkpoint; then starts another one."""
        cell = self.notebook.begin(launch)
        wait_until(lambda: (self.folder / "checkpoint_6").is_dir(), 30)
        self.notebook.read_until_ranks_wrote(cell, "waiting", 2)
        self.restart()

    def restart(self) -> None:
        os.kill(self.notebook.pid, signal.SIGKILL)
        self.notebook.restart()
        self.notebook.check(IMPORTS)
        self.go.touch()


@pytest.fixture
def killed(open_notebook: Callable[..., Notebook], tmp_path: Path) -> Killed:
    """Starts a kernel of its own, and another one for each that is killed."""
    notebook = open_notebook()
    notebook.check(IMPORTS + TRAIN)
    return Killed(notebook, tmp_path / "run")


def whole(killed: Killed) -> str:
    """The weights of a training that nothing interrupts."""
    killed.notebook.check(TRAIN)
    cell = killed.notebook.check(
        f"[weights for _, weights in notebook_launcher(train, ({str(killed.go)!r},), num_processes=2, device='cpu')]"
    )
    assert cell.value
    return cell.value


def test_another_kernel_continues_the_job_with_its_function_and_the_same_bits(killed: Killed) -> None:
    killed.kill(killed.launch())
    cell = killed.notebook.check("found = %accelerate resume")
    assert f"goes on from {killed.folder / 'checkpoint_6'}, in epoch 0, after 6 steps" in cell.text
    assert killed.notebook.check("[steps for steps, _ in found]").value == "[14, 14]"
    assert killed.notebook.run("train").error == "NameError"
    weights = killed.notebook.check("[weights for _, weights in found]").value
    cell = killed.notebook.run("%accelerate resume")
    assert "there is nothing to resume" in cell.error_text
    assert weights == whole(killed)
