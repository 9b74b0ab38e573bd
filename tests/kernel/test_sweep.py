"""Sweeps in a real kernel: the trials, the board, and how a sweep goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.live_notebook import Notebook, wait_until

TRAIN = """
def train(lr, wd=0, folder=""):
    print("not below the cell")
    for step in range(4):
        report({"val/loss": lr + wd / (step + 1)}, step=step)
    if lr == 3:
        raise ValueError("diverged")
    if folder:
        open(f"{folder}/began-{lr}", "w").close()
        while not os.path.exists(f"{folder}/go-{lr}"):
            time.sleep(0.01)
    return lr, os.environ["WORLD_SIZE"], os.environ["OMP_NUM_THREADS"]
"""


def test_each_combination_is_a_trial_and_a_row(notebook: Notebook) -> None:
    notebook.check(TRAIN)
    cell = notebook.check("runs = sweep(train, {'lr': [2, 1, 3], 'wd': [0, 1]}, at_once=2)")
    assert len(cell.bundles) == 1, "the trials show nothing themselves"
    assert not cell.stdout
    head, names, *rows = cell.displays[0].splitlines()
    assert head == "train() in 6 trials: 4 done, 2 failed; best val/loss 1: trial 2, lr=1 wd=0"
    assert names.split() == ["trial", "lr", "wd", "state", "val/loss", "time", "note"]
    assert re.fullmatch(r"0 +2 +0 +done +2 +\d.* s", rows[0])
    assert "ValueError: diverged at In[" in rows[4]
    html = cell.bundles[0]["text/html"]
    assert html.count("<tr") == 7
    assert "▁" in html or "█" in html
    assert notebook.check("sweep(train, {'lr': [2]})").value is None, "the cell has the board already"
    assert notebook.check("runs").value
    misspelled = notebook.check("sweep(train, {'lr': [2]}, metric='val/los')")
    assert "no trial has reported 'val/los' (did you mean 'val/loss'?): there are val/loss" in misspelled.text
    assert notebook.value("runs.best('val/loss').parameters") == {"lr": 1, "wd": 0}
    assert notebook.value("runs.results")[0] == [(2, "1", "1")]
    assert notebook.value("runs.results")[4:] == [None, None]
    assert notebook.value("[trial.metrics for trial in runs][1]") == {"val/loss": 2.25}
    assert notebook.value("[trial.state.value for trial in runs]") == ["done"] * 4 + ["failed"] * 2
    assert "not below the cell" in notebook.value("runs[0].job.log()")
    assert notebook.value("runs[1].job.title") == "train lr=2 wd=1"
    assert notebook.value("runs[1].job.notice") == ""
    assert notebook.run("runs[4].result()").error == "RankError"
    assert notebook.value("list(runs.dataframe()['val/loss'])")[:3] == [2.0, 2.25, 1.0]


def test_a_sweep_that_cannot_work_is_refused_before_any_trial(notebook: Notebook) -> None:
    notebook.check(TRAIN)
    for call, said in {
        "sweep(train, {'rate': [1]})": "train() can't be called with rate as keyword arguments",
        "sweep(train, {'lr': [1]}, kwargs={'lr': 2})": "kwargs has lr, which the trials set",
        "sweep(train, {'lr': [1]}, wd=1)": "it is a parameter of the function: {'wd': [...]} tries values",
        "sweep(train, {'lr': [1]}, at_onec=1)": "did you mean at_once?",
        "sweep(train, {'lr': [1]}, name='x')": "sweep() sets name of each launch itself",
        "sweep(train, {'lr': [1]}, halving=2)": "say by what: metric='loss'",
        "sweep(train, {'lr': [1]}, halving=0, metric='loss')": "halving=0: it must be at least 1",
        "sweep(train, {'lr': [1]}, halving=1, metric='reward')": "pass goal='min' or goal='max'",
        "sweep(train, {'lr': [1]}, n=10**5)": "n=100000: it must be at most 10000",
        "sweep(train, {'lr': [1]}, n=1, seed='x')": "seed must be a whole number, not 'x'",
        "sweep(train, {'lr': [1]}, resume='')": "neither True nor the ID of a sweep",
        "sweep(train, {'lr': [1]}, goal='low')": "neither 'min' nor 'max'",
        "sweep(train, {'lr': [1]}, gpus_each=1)": "torch can use no GPU here",
        "sweep(train, {'lr': [1]}, at_once=0)": "at_once=0: it must be at least 1",
        "sweep(train, {'lr': [threading.Lock()]})": "lock",
        "sweep(train, {'lr': [1]}, resume='nothing')": "no sweep is recorded whose ID begins with 'nothing'",
    }.items():
        cell = notebook.run(call)
        assert said in cell.error_text, call
        assert not cell.bundles, call


def test_bad_trials_are_stopped_early(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check("""
    def descend(lr, folder):
        for step in range(10**6):
            report(loss=lr, step=step)
            if lr == 1 and step == 20 or lr > 1 and step == 10**6 - 1:
                return lr
            time.sleep(0.01)
    """)
    options = f"kwargs={{'folder': {str(tmp_path)!r}}}, at_once=1, metric='loss'"
    cell = notebook.check(f"runs = sweep(descend, {{'lr': [1, 2, 3]}}, {options}, halving=5, factor=2)")
    assert notebook.value("[trial.state.value for trial in runs]") == ["done", "stopped early", "stopped early"]
    assert "2 at step 5 was not the best of 2" in cell.displays[0]
    assert notebook.value("runs.results") == [[1], None, None]
    cell = notebook.check(f"sweep(descend, {{'lr': [2]}}, {options}, rules=[when('loss', above=1, do='stop')])")
    assert "stopped early" in cell.displays[0]
    assert "loss is 2, above 1, at step 0" in cell.displays[0]
    notebook.check("from notebook_accel.runs.search import Fixed")
    notebook.check("Fixed.report = lambda *_: 1 / 0  # as a study whose storage is gone")
    cell = notebook.run(f"sweep(descend, {{'lr': [2, 3]}}, {options})")
    assert cell.error == "ZeroDivisionError"
    assert "its trials are stopped, because of ZeroDivisionError" in cell.text
    assert cell.displays[0].startswith("descend() in 2 trials: 2 cancelled")


def test_an_interrupt_stops_the_trials_and_resume_goes_on(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    call = f"runs = sweep(train, {{'lr': [1, 2, 4], 'folder': [{str(tmp_path)!r}]}}, at_once=1, resume=True)"
    (tmp_path / "go-1").touch()
    cell = notebook.begin(call)
    wait_until((tmp_path / "began-2").exists, 30)
    notebook.interrupt()
    notebook.finish(cell)
    assert cell.error == "KeyboardInterrupt"
    assert "continues it with the trials that are not done" in cell.error_text
    assert cell.displays[0].splitlines()[0].startswith("train() in 3 trials: 1 done, 2 cancelled")
    for lr in (2, 4):
        (tmp_path / f"go-{lr}").touch()
    (tmp_path / "began-1").unlink()
    again = notebook.check(call)
    assert again.displays[0].splitlines()[0].startswith("train() in 3 trials: 3 done")
    assert not (tmp_path / "began-1").exists(), "what is done does not run again"
    assert [each[0][0] for each in notebook.value("runs.results")] == [1, 2, 4]


def test_a_sweep_in_the_background_can_be_stopped(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check(TRAIN)
    notebook.check(f"runs = sweep(train, {{'lr': [1, 2, 4], 'folder': [{str(tmp_path)!r}]}}, at_once=2, block=False)")
    wait_until((tmp_path / "began-2").exists, 30)
    notebook.check("runs.stop(1, 2)")
    (tmp_path / "go-1").touch()
    assert notebook.value("runs.wait(30)") is True
    assert notebook.value("[trial.state.value for trial in runs]") == ["done", "cancelled", "cancelled"]


@pytest.mark.parametrize("option", ["block=False", pytest.param("detach=True", marks=pytest.mark.nightly)])
def test_a_new_kernel_goes_on(option: str, open_notebook: Callable[..., Notebook], tmp_path: Path) -> None:
    book = open_notebook()
    book.check("import os, time\nfrom notebook_accel import report, sweep\n" + TRAIN)
    call = f"runs = sweep(train, {{'lr': [1, 2, 4, 5], 'folder': [{str(tmp_path)!r}]}}, at_once=2, {option})"
    (tmp_path / "go-1").touch()
    book.check(call)
    wait_until((tmp_path / "began-4").exists, 60)
    id = book.value("runs.id")
    book.restart()
    for lr in (2, 4, 5):
        (tmp_path / f"go-{lr}").touch()  # a detached trial ends while no kernel looks
    for lr in (1, 2, 4):
        (tmp_path / f"began-{lr}").unlink()
    book.check("import os, time\nfrom notebook_accel import report, sweep\n" + TRAIN)
    book.check(call.replace(option, f"resume={id!r}"))
    assert book.value("[trial.state.value for trial in runs]") == ["done"] * 4
    assert [each[0][0] for each in book.value("runs.results")] == [1, 2, 4, 5]
    ran_again = {lr for lr in (1, 2, 4) if (tmp_path / f"began-{lr}").exists()}
    assert ran_again == (set() if "detach" in option else {2, 4})


def test_checkpoints_of_trials_are_apart(notebook: Notebook, tmp_path: Path) -> None:
    notebook.check("""
    def save(lr):
        return os.environ["NOTEBOOK_ACCEL_CHECKPOINT_DIR"]
    """)
    notebook.check(f"runs = sweep(save, {{'lr': [1, 2]}}, checkpoint={str(tmp_path)!r})")
    assert notebook.value("runs.results") == [[f"{tmp_path}/trial-{number}"] for number in range(2)]
