"""A script finds the same by both doors: as a job on the fork server, and in torch's elastic launcher."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.early

TELLS = """
import json, multiprocessing, os, signal, sys

def square(number):
    return number * number, __name__

if __name__ == "__main__":
    import random, threading, numpy, torch
    environment = dict(os.environ)
    found = {
        "environment": environment,
        "argv": sys.argv,
        "path": sys.path,
        "file": __file__,
        "spec": __spec__ and __spec__.name,
        "package": __package__,
        "globals": sorted(globals()),
        "main": sys.modules["__main__"].square is square,
        "stdin": sys.stdin.readline() if environment["RANK"] == "0" else None,
        "streams": [[each.encoding, each.errors, each.name, each.mode, each.line_buffering, each.write_through,
                     each.fileno(), each.isatty()] for each in (sys.stdin, sys.stdout, sys.stderr)],
        "signals": [str(signal.getsignal(number)) for number in (1, 2, 3, 13, 15, 17)],
        "threads": torch.get_num_threads(),
        "drawn": [float(numpy.random.rand()), random.random(), float(torch.rand(1))],
        "display": "display" in dir(__builtins__),
        "bytecode": sys.dont_write_bytecode,
        "session": os.getsid(0) == os.getpid(),
    }
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found["spawned"] = pool.map(square, [3])
    with open(f"{sys.argv[1]}/{environment['RANK']}", "w") as file:
        json.dump(found, file)
"""
DIFFERENT = {
    "MASTER_PORT": "each launch has its own",
    "TORCHELASTIC_ERROR_FILE": "where torch's launcher reads how a rank has failed",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "read by torch's launcher itself",
    "NOTEBOOK_ACCEL_JOB": "a script in torch's launcher is no job",
    "NOTEBOOK_ACCEL_KERNEL": "by which processes are found that a killed launch has left",
}
"""The variables that may differ, and why."""


def tell(folder: Path, *options: str, **environ: str) -> list[dict[str, Any]]:
    """What a script finds on each of two ranks."""
    (folder / "said").mkdir()
    (folder / "package").mkdir()
    (folder / "package" / "tells.py").write_text(TELLS)
    target = ["-m", "package.tells"] if "module" in options else ["package/tells.py"]
    doors = [each for each in options if each != "module"]
    command = [sys.executable, "-m", "notebook_accel", "launch", "--cpu", "--num_processes=2", *doors, *target]
    done = subprocess.run(
        [*command, str(folder / "said"), "--lr", "0.1"],
        cwd=folder,
        env={**os.environ, **environ},
        input="a line\n",
        capture_output=True,
        text=True,
        timeout=110,
        # Under `nohup`, a job's ranks ignore it, and those of torch's launcher do not.
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return [json.loads((folder / "said" / rank).read_text()) for rank in "01"]


@pytest.mark.parametrize("how", [(), pytest.param(("module",), marks=pytest.mark.nightly)], ids=["script", "module"])
def test_a_script_finds_the_same_by_both_doors(how: tuple[str, ...], tmp_path: Path) -> None:
    """Two launches of two ranks, each of which starts a further process."""
    found = []
    for door in ("--quiet", "--role=default"):
        folder = tmp_path / "here"
        folder.mkdir()
        found.append(tell(folder, door, *how, PYTHONUNBUFFERED="1" if how else ""))
        folder.rename(tmp_path / door)
    for job, elastic in zip(*found, strict=True):
        for variables in (job["environment"], elastic["environment"]):
            for name in DIFFERENT:
                variables.pop(name, None)
        for each in (job, elastic):
            del each["drawn"]
        assert job == elastic


def test_ranks_draw_different_numbers_as_processes_of_their_own_do(tmp_path: Path) -> None:
    first, second = tell(tmp_path)
    assert not set(first["drawn"]) & set(second["drawn"])


LATE = """
import os
os.environ["OMP_NUM_THREADS"] = "2"  # instead of one
import torch
print(f"{__name__} {torch.get_num_threads()} {__file__[-6:]}\\n", end="")
"""


def test_a_variable_that_a_script_sets_before_it_imports_torch_counts(tmp_path: Path) -> None:
    (tmp_path / "set.py").write_text(LATE)
    command = [sys.executable, "-m", "notebook_accel", "launch", "--cpu", "--num_processes=2", "set.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout, done.stderr) == (0, "__main__ 2 set.py\n" * 2, "")
