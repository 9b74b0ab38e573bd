"""A training run in a notebook that goes on in the next launch, after a failure, a signal, and a time limit."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.kernel.conftest import wait_for_preloading
from tests.live_notebook import Notebook, wait_until

# The kernel itself needs neither torch nor what trains.
TRAIN = """
def train(waits_at=None, fails_at=None):
    import time, torch
    from notebook_accel import Accelerator, set_seed

    set_seed(5)
    accelerator = Accelerator()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(20, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=1, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for epoch in accelerator.epochs(2):
        for (inputs,) in loader:
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
            if steps == waits_at:
                print("waiting", flush=True)
                time.sleep(600)
            if fails_at is not None and (inputs == data.tensors[0][fails_at]).all():
                raise ValueError("always here")
    return steps, accelerator.unwrap_model(model).weight.detach().tolist()

def launch(folder, *arguments, **options):
    return notebook_launcher(
        train, arguments, num_processes=2, device="cpu", checkpoint=folder, every=3, keep=2, **options
    )
"""

SLOW = """
def slowly(train=train):
    import time, torch

    step = torch.optim.AdamW.step
    def slow(self, *args, **kwargs):
        print("begun", flush=True)
        time.sleep(0.3)
        return step(self, *args, **kwargs)
    torch.optim.AdamW.step = slow
    return train()

def launch(folder, **options):
    return notebook_launcher(slowly, num_processes=2, device="cpu", checkpoint=folder, every=3, keep=2, **options)
"""
"""After `TRAIN`: its steps take a while."""


SHORT_GRACE = """
def shorten():
    from notebook_accel.train.checkpoints import folder_lock

    folder_lock.GRACE = 0.0
"""


@pytest.fixture
def whole(notebook: Notebook) -> str:
    """The weights of a training run that nothing interrupts."""
    notebook.check(TRAIN)
    return notebook.check("[weights for _, weights in notebook_launcher(train, num_processes=2, device='cpu')]").value


def test_the_next_launch_goes_on_where_a_killed_rank_was(notebook: Notebook, tmp_path: Path, whole: str) -> None:
    cell = notebook.begin(f"launch({str(tmp_path)!r}, 14)")
    notebook.read_until_ranks_wrote(cell, "waiting", 2)
    wait_until(lambda: (tmp_path / "checkpoint_12").is_dir())
    os.kill(notebook.launched()[-1].pid, signal.SIGKILL)
    notebook.finish(cell)
    assert cell.error == "RankError"
    assert "SIGKILL" in cell.error_text
    found = notebook.check(f"found = launch({str(tmp_path)!r}); [steps for steps, _ in found]")
    assert found.value == "[8, 8]"
    assert "resuming from" in found.stderr
    assert notebook.check("[weights for _, weights in found]").value == whole
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint_18", "checkpoint_20"]


def test_an_exception_that_repeats_at_the_same_step_ends_the_job(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    cell = notebook.run(f"launch({str(tmp_path)!r}, None, 7, max_restarts=9)")
    assert cell.error == "RankError"
    assert "ValueError: always here" in cell.error_text
    assert cell.text.count("starting again") == 1
    assert re.search(r"same exception was raised at the same step, \d+, as in the previous attempt", cell.text)


SHRINK = """
def shrink(folder):
    set_seed(5)
    accelerator = Accelerator()
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(40, 3)), batch_size=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in accelerator.epochs(1):
        for (inputs,) in loader:
            accelerator.backward(model(inputs).square().sum())
            optimizer.step()
            optimizer.zero_grad()
            if loader.cursor.done == 8 and accelerator.process_index == 1:
                wait_for(folder + "/checkpoint_6")
                raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
    return accelerator.num_processes

def launch(folder, **options):
    return notebook_launcher(
        shrink, (folder,), num_processes=2, device="cpu", checkpoint=folder, every=6, max_restarts=2, **options
    )
"""


def test_a_restart_goes_on_with_the_ranks_that_are_left_and_the_panel_says_so(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.check("import os\n" + SHRINK)
    cell = notebook.check(f"launch({str(tmp_path)!r}, min_processes=1)")
    assert cell.value == "[1]"
    assert "uncorrectable ECC error encountered; starting again with 1 of 2 ranks (attempt 2 of 3)" in cell.text
    shown = "restarted at step 6 of 8 with 1 of 2 ranks: 2 steps repeated"
    assert shown in cell.bundles[-1]["text/html"]
    assert shown in cell.bundles[-1]["text/plain"]
    cell = notebook.check("attach().show()")
    assert shown in cell.bundles[-1]["text/html"]
    assert (tmp_path / "checkpoint_30").is_dir()  # 6 steps on 2 ranks are 12 of the 40 batches of one
    cell = notebook.run(f"launch({str(tmp_path / 'other')!r}, min_processes=2)")
    assert "uncorrectable ECC error" in cell.error_text
    assert "only 1 of 2 ranks can start, which is fewer than min_processes=2, so the job is not started" in cell.text


def test_a_launch_that_saves_nothing_says_so_at_its_first_step_and_at_its_end(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.check("""
    def train(steps):
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        register_optimizer_step_post_hook(lambda *_: None)
        for _ in range(steps):
            optimizer.step()
    """)
    for steps in (2, 0):
        cell = notebook.check(f"notebook_launcher(train, ({steps},), 2, device='cpu', checkpoint={str(tmp_path)!r})")
        assert cell.text.count("[0] notebook-accel: checkpoint= does not save this training") == bool(steps)
        assert cell.text.count("[0] notebook-accel: each of the 2 ranks trains a model of its own") == bool(steps)
        assert "checkpoint= had no effect: train() has not run a loop over Accelerator.epochs" in cell.text
        assert f"nothing is saved to {tmp_path}" in cell.text
    notebook.check(f"%accelerate --checkpoint-dir {tmp_path}")
    cell = notebook.check("notebook_launcher(train, (0,), 2, device='cpu')")
    assert "the folder for checkpoints (from %accelerate --checkpoint-dir) had no effect: train()" in cell.text
    assert "otherwise, remove the setting" in cell.text
    notebook.check("%accelerate --reset")


def test_settings_of_the_notebook_reach_the_ranks(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    notebook.check(f"%accelerate -n 2 --device cpu --checkpoint-dir {tmp_path} --checkpoint-every 4")
    try:
        cell = notebook.check("notebook_launcher(train)")
    finally:
        notebook.check("%accelerate --reset")
    assert "checkpoint=" not in cell.text
    assert "checkpoint_20" in {each.name for each in tmp_path.iterdir()}


def test_sigterm_to_one_rank_ends_all_with_a_checkpoint_to_go_on_from(
    notebook: Notebook, tmp_path: Path, whole: str
) -> None:
    notebook.check(SLOW)
    cell = notebook.begin(f"launch({str(tmp_path)!r}, max_restarts=3)")
    notebook.read_until_ranks_wrote(cell, "begun", 2)
    os.kill(notebook.launched()[-1].pid, signal.SIGTERM)
    notebook.finish(cell)
    assert cell.error == "RankError"
    assert re.search(
        r"PreemptedError: SIGTERM ended the training after step (\d+). .*checkpoint_\1 has", cell.error_text
    )
    assert "starting again" not in cell.text
    notebook.check(TRAIN)
    notebook.check(f"found = launch({str(tmp_path)!r})")
    assert notebook.check("[weights for _, weights in found]").value == whole


@pytest.mark.nightly  # on clusters, machines shut down before each merge
def test_a_machine_that_shuts_down_ends_the_kernel_after_a_checkpoint(
    open_notebook: Callable[..., Notebook], tmp_path: Path, whole: str, notebook: Notebook
) -> None:
    """Sends SIGTERM to all processes, as the system does. Starts a kernel of its own, whose server imports torch."""
    other = open_notebook()
    other.check("from notebook_accel import notebook_launcher\n" + TRAIN + SLOW)
    wait_for_preloading(other)
    cell = other.begin(f"launch({str(tmp_path)!r})")
    other.read_until_ranks_wrote(cell, "begun", 2)
    kernel = psutil.Process(other.pid)
    for process in (*kernel.children(recursive=True), kernel):
        process.send_signal(signal.SIGTERM)
    wait_until(lambda: not other.manager.is_alive())
    assert any(tmp_path.glob("checkpoint_*"))
    notebook.check(f"found = launch({str(tmp_path)!r})")
    assert notebook.check("[weights for _, weights in found]").value == whole


@pytest.mark.nightly
def test_sigterm_to_a_detached_job_ends_it_after_a_checkpoint(notebook: Notebook, tmp_path: Path, whole: str) -> None:
    notebook.check(SLOW)
    notebook.check(f"job = launch({str(tmp_path)!r}, detach=True)")
    wait_until(lambda: (tmp_path / "checkpoint_3").is_dir())
    (driver,) = [each for each in notebook.processes() if "driver.detached_main:main" in " ".join(each.cmdline())]
    driver.terminate()
    cell = notebook.run("job.result()")
    assert "PreemptedError: SIGTERM ended the training after step" in cell.error_text
    notebook.check(TRAIN)
    notebook.check(f"found = launch({str(tmp_path)!r})")
    assert notebook.check("[weights for _, weights in found]").value == whole


def test_a_training_ends_at_its_time_limit(notebook: Notebook, tmp_path: Path, whole: str) -> None:
    notebook.check(SLOW)
    cell = notebook.run(f"launch({str(tmp_path)!r}, time_limit='0.5 s', max_restarts=3)")
    assert "PreemptedError: its time limit ended the training after step" in cell.error_text
    notebook.check(TRAIN)
    notebook.check(f"found = launch({str(tmp_path)!r})")
    assert notebook.check("[weights for _, weights in found]").value == whole


def test_a_folder_belongs_to_one_training_until_its_kernel_is_killed(
    open_notebook: Callable[..., Notebook], tmp_path: Path, whole: str, notebook: Notebook
) -> None:
    """Starts a kernel of its own, whose server imports torch."""
    folder = tmp_path / "runs"
    other = open_notebook(state=notebook.state)
    other.check("from notebook_accel import notebook_launcher\n" + TRAIN)
    cell = other.begin(f"launch({str(folder)!r}, 14)")
    other.read_until_ranks_wrote(cell, "waiting", 2)
    wait_until(lambda: (folder / "checkpoint_12").is_dir())
    refused = notebook.run(f"launch({str(folder)!r})")
    assert refused.error == "ConfigurationError"
    assert f"saves its checkpoints in the same folder, {folder}, so that each of the two" in refused.error_text
    assert re.search(
        r"To watch it, call attach\('\w+'\); to end it first, attach\('\w+'\)\.cancel\(\)", refused.error_text
    )
    notebook.check(f"%accelerate --checkpoint-dir {folder}")  # then, only a launch that trains is refused
    try:
        assert notebook.check("notebook_launcher(int, num_processes=1, device='cpu')").value == "[0]"
        notebook.check(f"{SHORT_GRACE}\nwith_short_grace = lambda: (shorten(), train())")
        refused = notebook.run("notebook_launcher(with_short_grace, num_processes=2, device='cpu')")
    finally:
        notebook.check("%accelerate --reset")
    assert refused.error == "RankError"
    assert f"ConfigurationError: {folder} is in use: process " in refused.error_text
    os.kill(other.pid, signal.SIGKILL)
    found = notebook.check(f"found = launch({str(folder)!r}); [steps for steps, _ in found]")
    assert found.value == "[8, 8]"
    assert notebook.check("[weights for _, weights in found]").value == whole
    assert sorted(each.name for each in folder.iterdir()) == ["checkpoint_18", "checkpoint_20"]
