"""`notebook-accel resume` of a script whose launcher was killed."""

import contextlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_accel import notebook_launcher
from tests.live_notebook import wait_until

_SCRIPT = """
import os, sys, time
import torch
from notebook_accel import Accelerator

accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
loader = torch.utils.data.DataLoader(torch.arange(80.0).reshape(20, 4) / 80, batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
steps = 0
for epoch in accelerator.epochs(4):
    for batch in loader:
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
        while steps == 8 and not os.path.exists("go"):
            time.sleep(0.01)
accelerator.print(f"weights {accelerator.unwrap_model(model).weight.flatten().tolist()} after {steps} steps")
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jobs that no other test uses."""
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "notebook_accel", *words]


def _run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*words), cwd=cwd, capture_output=True, text=True, timeout=110, check=False)


def _undisturbed(script: str) -> str:
    """On a rank: what the script prints in a run that nothing interrupts."""
    sys.argv = [script, "0.1"]
    os.chdir(os.path.dirname(script))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(script, run_name="__main__")
    return said.getvalue()


@pytest.mark.usefixtures("state")
def test_a_script_whose_launcher_was_killed_continues_from_its_checkpoints(tmp_path: Path) -> None:
    """The ranks of two of its commands import what training needs."""
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "train.py").write_text(_SCRIPT)
    options = ("launch", "--cpu", "--num_processes", "2", "--checkpoint_dir", "saved", "--checkpoint_every", "3")
    launched = subprocess.Popen(_command(*options, "train.py", "0.1"), cwd=folder, start_new_session=True)
    saved = folder / "saved"
    wait_until(lambda: list(saved.glob("checkpoint_*")) or launched.poll() is not None, timeout=100)
    assert launched.poll() is None
    os.killpg(launched.pid, signal.SIGKILL)
    launched.wait()
    (folder / "go").touch()

    (job,) = json.loads(_run("jobs", "--json", cwd=elsewhere).stdout)
    assert job["name"] == "train.py"
    resumed = _run("resume", job["id"], cwd=elsewhere)
    assert resumed.returncode == 0, resumed.stderr
    assert f"continues from {saved / 'checkpoint_'}" in resumed.stderr

    undisturbed = notebook_launcher(_undisturbed, (str(folder / "train.py"),), num_processes=2, device="cpu")
    weights = undisturbed[0].partition("]")[0]
    assert weights.startswith("weights [")
    assert f"{weights}]" in resumed.stdout
    again = _run("resume", job["id"], cwd=elsewhere)
    assert (again.returncode, "there is nothing to resume" in again.stderr) == (2, True)


@pytest.mark.nightly
@pytest.mark.usefixtures("state")
def test_a_script_that_fails_when_it_is_resumed_names_its_rank_and_line(tmp_path: Path) -> None:
    """Two of its commands import torch."""
    (tmp_path / "train.py").write_text(_SCRIPT.replace("steps += 1", "steps += 1\n        1 / (steps - 5)"))
    (tmp_path / "go").touch()
    options = ("launch", "--cpu", "--num_processes", "2", "--checkpoint_dir", "saved", "--checkpoint_every", "3")
    failed = _run(*options, "train.py", "0.1", cwd=tmp_path)
    assert failed.returncode == 1
    (job,) = json.loads(_run("jobs", "--json", cwd=tmp_path).stdout)
    resumed = _run("resume", job["id"], cwd=tmp_path)
    assert resumed.returncode != 0
    assert "ZeroDivisionError" in resumed.stderr
    assert f'{tmp_path}/train.py", line 20' in resumed.stderr
