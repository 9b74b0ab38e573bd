"""What ranks on torch_xla cost, beside `torch_xla.launch` and a loop by hand, on torch_xla's CPU device.

Run it in the environment of `scripts/test-tpu`: `.venv-tpu/bin/python benchmarks/tpu.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Kernel, Spread, goal, table, warn_if_busy

RANKS = 4
STEPS = 100
LAUNCHES = 4
"""In each fresh kernel."""
SETTLE = 0.25
"""Seconds between two launches from a server that is warm."""
PAUSE = 2.0
"""Seconds between two cells of somebody who reads what the first has printed."""
TIMEOUT = 120.0

OURS = """
import time
from notebook_accel import notebook_launcher

def first_line(path):
    began = time.perf_counter()
    with open(path, "a") as file:
        file.write(f"{began}\\n")
"""
# By fork: its own default, spawn, cannot run what a cell has defined.
PEER = """
import sys, time
import torch_xla

def first_line(index, path):
    began = time.perf_counter()
    with open(path, "a") as file:
        file.write(f"{began}\\n")
"""
SCRIPT = f"""{PEER}
if __name__ == "__main__":
    began = time.perf_counter()
    torch_xla.launch(first_line, args=(sys.argv[1],), start_method="fork")
    print(began)
"""


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 launches instead of 10")
    rounds = 3 if parser.parse_args().quick else 10
    warn_if_busy()
    os.environ |= {"PJRT_DEVICE": "CPU", "NOTEBOOK_ACCEL_DEVICE": "tpu", "CPU_NUM_DEVICES": str(RANKS)}
    launches(rounds)
    fresh_kernels(1 if rounds == 3 else 3)
    graphs()


def launches(rounds: int) -> None:
    """From the call until the function has begun on every rank, one of each in turn, with everything imported."""
    ours, peers = [], []
    with tempfile.TemporaryDirectory() as folder, Kernel(TIMEOUT) as kernel:
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
    table(
        f"The call alone, from a warm server and in a script that has imported torch_xla, to the first line on {RANKS} "
        "ranks, ms: median (least-most)",
        ("", "time"),
        [("notebook_launcher", mine.text()), ("torch_xla.launch by fork", other.text())],
    )
    goal("ratio, median of pairs", mine.over(other).median, 0.3)


def fresh_kernels(rounds: int) -> None:
    """From a fresh kernel's first cell, imports and all, to the first line on every rank; and again for later cells."""
    cells = {
        "notebook_launcher": (OURS, "notebook_launcher(first_line, ({path!r},))"),
        "torch_xla.launch by fork": (PEER, "torch_xla.launch(first_line, args=({path!r},), start_method='fork')"),
    }
    first: dict[str, list[float]] = {name: [] for name in cells}
    later: dict[str, list[float]] = {name: [] for name in cells}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for name, (imports, call) in cells.items():
                with Kernel(TIMEOUT) as kernel:
                    for launch in range(LAUNCHES):
                        path = Path(folder) / f"{name} {number} {launch}"
                        began = time.perf_counter()
                        if launch == 0:
                            kernel.run(imports)
                        kernel.run(call.format(path=str(path)))
                        (later if launch else first)[name].append(_last(path) - began)
                        time.sleep(PAUSE)
    spreads = [{name: Spread(values) for name, values in times.items()} for times in (first, later)]
    mine, other = cells
    table(
        f"In a fresh kernel, from the cell to the first line on {RANKS} ranks, s: median (least-most)",
        ("", "imports and first launch", "a later launch"),
        [
            *((name, *(times[name].text(1, 2) for times in spreads)) for name in cells),
            ("ratio", *(times[mine].over(times[other]).ratio() for times in spreads)),
        ],
    )


def _last(path: Path) -> float:
    times = [float(line) for line in path.read_text().split()]
    if len(times) != RANKS:
        sys.exit(f"{len(times)} of {RANKS} ranks have begun")
    return max(times)


def graphs() -> None:
    """How many graphs XLA compiles and runs in so many steps on one device, by its own metrics."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from notebook_accel import notebook_launcher
    from tests.tpu import loops

    os.environ["NOTEBOOK_ACCEL_VIEW"] = "off"
    by_hand, ours = (
        notebook_launcher(loops.count_graphs, (by, STEPS), num_processes=1)[0] for by in ("hand", "Accelerator")
    )
    table(
        f"{STEPS} steps of AdamW, one device",
        ("", "graphs compiled", "graphs run"),
        [
            ("Accelerator", str(ours["compiled"]), str(ours["executed"])),
            ("by hand", str(by_hand["compiled"]), str(by_hand["executed"])),
        ],
    )
    goal("graphs compiled, beyond those of the loop by hand", ours["compiled"] - by_hand["compiled"], 0)


if __name__ == "__main__":
    main()
