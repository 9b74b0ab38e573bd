"""`%accelerate resume`: a kernel is killed in the middle of a training, and another continues it from disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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
    """Kills a kernel, and starts another, each of which imports torch."""
    killed.kill(killed.launch())
    cell = killed.notebook.check("found = %accelerate resume")
    assert f"goes on from {killed.folder / 'checkpoint_6'}, in epoch 0, after 6 steps" in cell.text
    assert killed.notebook.check("[steps for steps, _ in found]").value == "[14, 14]"
    assert killed.notebook.run("train").error == "NameError"
    weights = killed.notebook.check("[weights for _, weights in found]").value
    cell = killed.notebook.run("%accelerate resume")
    assert "there is nothing to resume" in cell.error_text
    assert weights == whole(killed)


def test_changed_code_is_shown_and_the_user_chooses(killed: Killed) -> None:
    """Kills a kernel, and starts another, each of which imports torch."""
    killed.kill(killed.launch(block=False))
    changed = TRAIN.replace("steps += 1\n", "steps += 1\n            if inputs.numel(): raise ValueError('of now')\n")
    killed.notebook.check(changed)
    cell = killed.notebook.run("%accelerate resume")
    assert cell.error == "ConfigurationError"
    assert "--- train, as launched\n+++ train, as it is now\n" in cell.stdout
    assert "\n+            if inputs.numel(): raise ValueError('of now')\n" in cell.stdout
    assert "loss_of" not in cell.stdout.replace("accelerator.backward(loss_of(model(inputs)))", "")
    assert not killed.notebook.launched()
    cell = killed.notebook.check("job = %accelerate resume --current-code")
    cell = killed.notebook.run("job.result()")
    assert "ValueError: of now" in cell.error_text
    killed.notebook.check("RATE = 7.0; first = jobs()[-1].id")
    killed.notebook.check("job = %accelerate resume --saved-code {first}")
    killed.notebook.check("found = job.result()")
    assert killed.notebook.check("RATE").value == "7.0"
    assert killed.notebook.check("[steps for steps, _ in found]").value == "[14, 14]"
    weights = killed.notebook.check("[weights for _, weights in found]").value
    assert weights == whole(killed)


def test_a_detached_job_is_resumed_detached_once_it_no_longer_runs(killed: Killed) -> None:
    """Kills a kernel and a detached job's process, and starts another kernel."""
    killed.kill(f"job = {killed.launch(detach=True)}")
    cell = killed.notebook.run("%accelerate resume")
    assert cell.error == "ConfigurationError"
    assert "still runs: %accelerate attach" in cell.error_text
    (driver,) = [
        each for each in killed.notebook.processes() if "driver.detached_main:main" in " ".join(each.cmdline())
    ]
    driver.kill()
    driver.wait()
    killed.notebook.check("job = %accelerate resume")
    assert killed.notebook.check("[steps for steps, _ in job.result()]").value == "[14, 14]"
    assert killed.notebook.check("jobs()[0].detached").value == "True"


def test_a_job_without_a_checkpoint_begins_anew_and_one_whose_folder_is_gone_is_refused(killed: Killed) -> None:
    """Kills a kernel, and starts another, each of which imports torch."""
    cell = killed.notebook.begin(killed.launch(every=1000))
    killed.notebook.read_until_ranks_wrote(cell, "waiting", 2)
    killed.restart()
    killed.folder.rename(killed.folder.with_name("moved"))
    cell = killed.notebook.run("%accelerate resume")
    assert f"there is no folder {killed.folder} for the checkpoints of train()" in cell.error_text
    killed.folder.with_name("moved").rename(killed.folder)
    cell = killed.notebook.run("%accelerate resume --current-code")
    assert "this notebook does not define train: run its cell first" in cell.error_text
    cell = killed.notebook.check("found = %accelerate resume")
    assert killed.notebook.check("[steps for steps, _ in found]").value == "[20, 20]"
    assert f"begins anew, since {killed.folder} has no valid checkpoint yet" in cell.text


def test_a_terminal_continues_the_job_of_a_notebook(killed: Killed) -> None:
    """Kills a kernel, and starts another; the command imports torch, and its ranks."""
    killed.kill(killed.launch())
    job_id = killed.notebook.value("jobs()[0].id")
    assert f"%accelerate resume {job_id}" in killed.notebook.run("attach().result()").error_text

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "NOTEBOOK_ACCEL_STATE": killed.notebook.state, "TMPDIR": killed.notebook.temporary}
        command = [sys.executable, "-m", "notebook_accel", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)

    assert json.loads(run("jobs", "--json").stdout)[0]["id"] == job_id
    done = run("resume", job_id)
    assert done.returncode == 0, done.stderr
    assert f"goes on from {killed.folder / 'checkpoint_6'}" in done.stdout + done.stderr
    assert (killed.folder / "checkpoint_20").is_dir()
    again = run("resume", job_id)
    assert again.returncode == 2
    assert "there is nothing to resume" in again.stderr
