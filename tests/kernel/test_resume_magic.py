"""A kernel is killed in the middle of training runs, and another continues them from disk, by `%accelerate resume`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kernel.conftest import end, nothing_is_left, wait_for_preloading
from tests.live_notebook import Notebook, wait_until

IMPORTS = "from notebook_accel import attach, jobs, notebook_launcher\nimport threading, time, torch\n"
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
    from notebook_accel import Accelerator, set_seed

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


JOBS: dict[str, dict[str, Any]] = {
    "for a terminal": {},
    "in the background": {"block": False},
    "detached": {"detach": True},
    "without a checkpoint": {"every": 1000},
    "to launch again": {},
    "for the cell": {},
}
"""How each is launched; all but the detached one die with the kernel. The last one is the newest."""


class Killed:
    """A notebook whose kernel was killed in the middle of training runs, and its next kernel."""

    def __init__(self, folder: Path) -> None:
        self.notebook = Notebook()
        self.go = folder / "go"
        """A file; without it, a training run waits at its eighth step."""
        self._folder = folder
        self._ids: dict[str, str] = {}

    def folder(self, name: str) -> Path:
        """Where a job saves its checkpoints."""
        return self._folder / name.replace(" ", "-")

    def id(self, name: str) -> str:
        """The ID that a job had in the kernel that was killed."""
        return self._ids[name]

    def begin(self) -> None:
        """Launches all of them at once, and kills the kernel when each has come to where it waits."""
        self.notebook.check(IMPORTS + TRAIN)
        wait_for_preloading(self.notebook)
        self.go.touch()
        self.whole = self.notebook.value(
            f"[weights for _, weights in notebook_launcher(train, ({str(self.go)!r},), num_processes=2, device='cpu')]"
        )
        """The weights of a training run that nothing interrupts, by rank."""
        self.go.unlink()
        for name, options in JOBS.items():
            self._launch(name, options)
        os.kill(self.notebook.pid, signal.SIGKILL)
        self.notebook.restart()
        self.notebook.check(IMPORTS)
        wait_for_preloading(self.notebook)
        self.go.touch()

    def _launch(self, name: str, options: dict[str, Any]) -> None:
        folder = self.folder(name)
        settings = {"num_processes": 2, "device": "cpu", "checkpoint": str(folder), "every": 3, "keep": 2, **options}
        written = ", ".join(f"{each}={value!r}" for each, value in settings.items())
        launch = f"notebook_launcher(train, ({str(self.go)!r},), {written})"
        self.notebook.check("before = {each.id for each in jobs()}")
        if {"block", "detach"} & options.keys():
            cell = self.notebook.check(f"jobs_in_memory = [*globals().get('jobs_in_memory', []), {launch}]")
        else:  # waited for, but not by a cell: another follows
            cell = self.notebook.check(f"threading.Thread(target=lambda: {launch}, daemon=True).start()")
        self.notebook.read_until_ranks_wrote(cell, "waiting", 2)
        if "every" not in options:
            wait_until((folder / "checkpoint_6").is_dir)  # another thread writes it
        # It is recorded soon. Not the newest: the clock of a virtual machine may be set back.
        self.notebook.check("while not (new := {each.id for each in jobs()} - before): time.sleep(0.01)")
        (self._ids[name],) = self.notebook.value("new")

    def detached(self) -> list[psutil.Process]:
        """The processes of detached jobs."""
        found = self.notebook.processes()
        return [each for each in found if "driver.detached_main:main" in " ".join(each.cmdline())]

    def end(self) -> None:
        for each in self.detached():
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        end(self.notebook)


@pytest.fixture(scope="module")
def after_a_kill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Starts two kernels: one is killed, and the other one resumes its jobs."""
    found = Killed(tmp_path_factory.mktemp("runs"))
    try:
        found.begin()
        yield found
    finally:
        found.end()


@pytest.fixture
def killed(after_a_kill: Killed) -> Killed:
    """As `after_a_kill`; the notebook has defined nothing yet."""
    after_a_kill.notebook.check("for name in ('RATE', 'Model', 'loss_of', 'train'):\n    globals().pop(name, None)")
    return after_a_kill


def test_another_kernel_continues_the_job_with_its_function_and_the_same_bits(killed: Killed) -> None:
    """Two kernels start before it, and five training runs."""
    cell = killed.notebook.check("found = %accelerate resume")
    assert f"continues from {killed.folder('for the cell') / 'checkpoint_6'}, in epoch 0, after 6 steps" in cell.text
    assert killed.notebook.value("[steps for steps, _ in found]") == [14, 14]
    assert killed.notebook.run("train").error == "NameError"
    assert killed.notebook.value("[weights for _, weights in found]") == killed.whole
    cell = killed.notebook.run(f"%accelerate resume {killed.id('for the cell')}")
    assert "there is nothing to resume" in cell.error_text


def test_changed_code_is_shown_and_the_user_chooses(killed: Killed) -> None:
    job = killed.id("in the background")
    changed = TRAIN.replace("steps += 1\n", "steps += 1\n            if inputs.numel(): raise ValueError('of now')\n")
    killed.notebook.check(changed)
    before = set(killed.notebook.launched())
    cell = killed.notebook.run(f"%accelerate resume {job}")
    assert cell.error == "ConfigurationError"
    assert "--- train, as launched\n+++ train, as it is now\n" in cell.stdout
    assert "\n+            if inputs.numel(): raise ValueError('of now')\n" in cell.stdout
    assert "loss_of" not in cell.stdout.replace("accelerator.backward(loss_of(model(inputs)))", "")
    assert set(killed.notebook.launched()) <= before  # those of earlier jobs may be ending
    cell = killed.notebook.check(f"job = %accelerate resume --current-code {job}")
    cell = killed.notebook.run("job.result()")
    assert "ValueError: of now" in cell.error_text
    killed.notebook.check("RATE = 7.0")
    killed.notebook.check(f"job = %accelerate resume --saved-code {job}")
    killed.notebook.check("found = job.result()")
    assert killed.notebook.value("RATE") == 7.0
    assert killed.notebook.value("[steps for steps, _ in found]") == [14, 14]
    assert killed.notebook.value("[weights for _, weights in found]") == killed.whole


def test_a_detached_job_is_resumed_detached_once_it_no_longer_runs(killed: Killed) -> None:
    """Kills a detached job's process."""
    job = killed.id("detached")
    cell = killed.notebook.run(f"%accelerate resume {job}")
    assert cell.error == "ConfigurationError"
    assert f"still runs, and saves to {killed.folder('detached')}: %accelerate attach" in cell.error_text
    (driver,) = killed.detached()
    driver.kill()
    driver.wait()
    killed.notebook.check(f"job = %accelerate resume {job}")
    assert killed.notebook.value("[steps for steps, _ in job.result()]") == [14, 14]
    assert killed.notebook.value("jobs()[0].detached")
    nothing_is_left(killed.notebook)


def test_a_job_without_a_checkpoint_begins_anew_and_one_whose_folder_is_gone_is_refused(killed: Killed) -> None:
    job, folder = killed.id("without a checkpoint"), killed.folder("without a checkpoint")
    folder.rename(folder.with_name("moved"))
    cell = killed.notebook.run(f"%accelerate resume {job}")
    assert f"there is no folder {folder} for the checkpoints of train()" in cell.error_text
    folder.with_name("moved").rename(folder)
    cell = killed.notebook.run(f"%accelerate resume --current-code {job}")
    assert "this notebook does not define train: run its cell first" in cell.error_text
    cell = killed.notebook.check(f"found = %accelerate resume {job}")
    assert killed.notebook.value("[steps for steps, _ in found]") == [20, 20]
    assert f"starts from the beginning, because {folder} has no valid checkpoint yet" in cell.text


def test_the_same_launch_continues_the_training(killed: Killed) -> None:
    killed.notebook.check(TRAIN)
    options = f"num_processes=2, device='cpu', checkpoint={str(killed.folder('to launch again'))!r}, every=3, keep=2"
    cell = killed.notebook.check(f"found = notebook_launcher(train, ({str(killed.go)!r},), {options})")
    assert "resuming from" in cell.stderr
    assert killed.notebook.value("[steps for steps, _ in found]") == [14, 14]
    assert killed.notebook.value("[weights for _, weights in found]") == killed.whole


def test_a_terminal_continues_the_job_of_a_notebook(killed: Killed) -> None:
    """The command imports torch, and its ranks."""
    job, folder = killed.id("for a terminal"), killed.folder("for a terminal")
    assert f"%accelerate resume {job}" in killed.notebook.run(f"attach({job!r}).result()").error_text

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "NOTEBOOK_ACCEL_STATE": killed.notebook.state, "TMPDIR": killed.notebook.temporary}
        command = [sys.executable, "-m", "notebook_accel", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)

    assert job in {each["id"] for each in json.loads(run("jobs", "--json").stdout)}
    done = run("resume", job)
    assert done.returncode == 0, done.stderr
    assert f"continues from {folder / 'checkpoint_6'}" in done.stdout + done.stderr
    assert (folder / "checkpoint_20").is_dir()
    again = run("resume", job)
    assert again.returncode == 2
    assert "there is nothing to resume" in again.stderr
