"""What a launch on torch_xla takes, beside `torch_xla.launch`, on torch_xla's CPU device.

It runs in the environment of `scripts/test-tpu`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Kernel, Spread, goal, versus

RANKS = 4
SETTLE = 0.25
"""Seconds between two launches from a server that is warm."""
OURS = """
import time
from notebook_accel import notebook_launcher

def first_line(path):
    began = time.perf_counter()
    with open(path, "a") as file:
        file.write(f"{began}\\n")
"""
# By fork: its own default, spawn, cannot run what a cell has defined.
SCRIPT = """
import sys, time
import torch_xla

def first_line(index, path):
    began = time.perf_counter()
    with open(path, "a") as file:
        file.write(f"{began}\\n")

if __name__ == "__main__":
    began = time.perf_counter()
    torch_xla.launch(first_line, args=(sys.argv[1],), start_method="fork")
    print(began)
"""


def measure(*, quick: bool) -> None:
    os.environ |= {"PJRT_DEVICE": "CPU", "NOTEBOOK_ACCEL_DEVICE": "tpu", "CPU_NUM_DEVICES": str(RANKS)}
    launches(3 if quick else 10)


def launches(rounds: int) -> None:
    """From the call until the function has begun on every rank, one of each in turn, with everything imported."""
    ours, peers = [], []
    with tempfile.TemporaryDirectory() as folder, Kernel(120) as kernel:
        script = Path(folder) / "peer.py"
        script.write_text(SCRIPT)
        kernel.run(OURS)
        kernel.run(f"notebook_launcher(first_line, ({str(Path(folder) / 'warm')!r},))")
        for number in range(rounds):
            time.sleep(SETTLE)
            mine = Path(folder) / f"ours{number}"
            began = kernel.run(f"print(time.perf_counter()); notebook_launcher(first_line, ({str(mine)!r},))")
            ours.append(_last(mine) - float(began.splitlines()[0]))
            theirs = Path(folder) / f"peer{number}"
            said = subprocess.run(
                [sys.executable, script, theirs],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=True,
                text=True,
            )
            peers.append(_last(theirs) - float(said.stdout))
    mine, other = Spread(ours), Spread(peers)
    rows = {"the call alone, with everything imported": (mine, other)}
    sides = ("notebook_launcher", "torch_xla.launch by fork")
    versus(f"From the call to the first line on {RANKS} ranks, ms", sides, rows)
    goal("ratio, median of pairs", mine.over(other).median, 0.3)


def _last(path: Path) -> float:
    times = [float(line) for line in path.read_text().split()]
    if len(times) != RANKS:
        sys.exit(f"{len(times)} of {RANKS} ranks have begun")
    return max(times)
