"""What a launch takes with the build of torch for CUDA on a machine without a GPU, compared with the build for the CPU.

It runs in `.venv-cuda`, which has the build for CUDA; that for the CPU is in `.venv`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from common import Spread, goal, table, warn_if_busy
from launch import Launch, Launcher, in_turn, spread

CPU_PYTHON = str(Path(__file__).parents[1] / ".venv" / "bin" / "python")
BUILDS = {
    "notebook-accel, CPU build": ("notebook-accel", CPU_PYTHON),
    "notebook-accel, CUDA build": ("notebook-accel", sys.executable),
    "Accelerate, CUDA build": ("Accelerate", sys.executable),
}
WHAT = {
    "first_line": "function begun on both ranks",
    "collective": "first collective done on both",
    "finished": "cell finished",
}


def measure_first(kernels: int) -> None:
    """The server's start: the import and the first launch in one cell, each in a kernel of its own."""
    found: dict[str, list[Launch]] = {build: [] for build in BUILDS}
    for _ in range(kernels):
        for build, (name, python) in BUILDS.items():
            with Launcher(name, warm=False, python=python) as launcher:
                launch = launcher.launch(first=True)
            if launch is not None:
                found[build].append(launch)
    times = [spread(launches) for launches in found.values()]
    rows = [["import and launch in one cell", *(each.text() for each in times)]]
    table(f"First launch of 2 ranks, {kernels} kernels each", ["cell finished, ms", *BUILDS], rows)
    goal("import and launch, CUDA build, notebook-accel / Accelerate", times[1].over(times[2]).median, 1.0)


def measure_warm(launchers: list[Launcher], rounds: int) -> None:
    found = in_turn(launchers, rounds)
    rows = [[what, *(spread(each, field).text() for each in found)] for field, what in WHAT.items()]
    table(f"Warm launch of 2 ranks, {rounds} rounds", ["since the call, ms: median (least-most)", *BUILDS], rows)
    goal("function begun on both ranks, CUDA build", 1e3 * spread(found[1], "first_line").median, 25, " ms")
    ratio = spread(found[1]).over(spread(found[2])).median
    goal("cell finished, CUDA build, notebook-accel / Accelerate", ratio, 0.3)


def measure_memory(launchers: list[Launcher]) -> None:
    found = [[Spread(column) for column in zip(*each.idle_memory(), strict=True)] for each in launchers]
    rows = [
        [what, *(measured[index].text(1e6, 1) for measured in found)]
        for index, what in enumerate(("idle", "after a collective"))
    ]
    table("Private memory of a rank, MB", ["", *BUILDS], rows)
    goal("idle, CUDA build", found[1][0].median / 1e6, 40, " MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    warn_if_busy()
    measure_first(1 if quick else 3)
    launchers = [Launcher(name, python=python) for name, python in BUILDS.values()]
    try:
        measure_warm(launchers, 5 if quick else 20)
        measure_memory(launchers)
    finally:
        for each in launchers:
            each.__exit__()


if __name__ == "__main__":
    main()
