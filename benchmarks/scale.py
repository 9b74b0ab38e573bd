"""What a notebook's side of a launch costs when its ranks are many: 1,000 on 125 machines, and 64 that say much.

Kernel, bridge, wire, panel and browser are real; machines and ranks are pretended (see `pretended.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pretended
import psutil
from common import CellError, Kernel, goal, table, warn_if_busy

MANY, FEW = 1000, 64
_BRIDGE = "cluster.bridge:main"
_SETUP = """
import os
from notebook_accel import attach, notebook_launcher

def train(): raise AssertionError("a pretended rank runs nothing")

def launch(ranks, nodes, rate, gates):
    env = {"PRETEND_GATES": gates, "PRETEND_RATE": str(rate)}
    notebook_launcher(train, num_processes=ranks, num_nodes=nodes, cluster="slurm", device="cpu", env=env)

print(os.getpid())
"""
_COUNT = "print(len(attach().metrics))"


@dataclass
class Launched:
    """What one launch has cost. Seconds."""

    first_line: float = float("nan")
    """From the call to the first line of the last rank, as a front end sees it."""
    kernel: float = float("nan")
    """Percent of a core, in between."""
    bridge: float = float("nan")
    end: float = float("nan")
    """From the last rank's end to the cell's, or from the failure to the cell's error."""
    ending: float = float("nan")
    """Processor time of both for the end."""
    told: int = 0
    """Metrics that the ranks have told."""

    @property
    def driver(self) -> float:
        return self.kernel + self.bridge

    def row(self, name: str) -> list[str]:
        return [
            name,
            f"{self.first_line:.2f}",
            f"{self.kernel:.1f}",
            f"{self.bridge:.1f}",
            f"{self.end:.2f}",
            f"{self.ending:.2f}",
        ]


_HEAD = ["", "to the last first line, s", "kernel %", "bridge %", "to the cell's end, s", "CPU of the end, s"]


class Driver:
    """The kernel's process and the bridge's."""

    def __init__(self, pid: int) -> None:
        self.kernel = psutil.Process(pid)
        self._at = (0.0, 0.0, 0.0)

    @property
    def bridge(self) -> psutil.Process:
        return next(each for each in self.kernel.children() if _BRIDGE in " ".join(each.cmdline()))

    def begin(self) -> None:
        self._at = self._now()

    def used(self) -> tuple[float, float, float]:
        """Seconds since then: on the clock, of the kernel, of the bridge."""
        clock, kernel, bridge = (now - then for now, then in zip(self._now(), self._at, strict=True))
        return clock, kernel, bridge

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), _cpu_seconds(self.kernel), _cpu_seconds(self.bridge)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def launch(kernel: Kernel, driver: Driver, ranks: int, rate: float, seconds: float, *, fails: bool = False) -> Launched:
    """Launches ranks, watches them for so long, and lets them end or one of them fail."""
    found = Launched()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        cell = kernel.begin(f"launch({ranks}, {ranks // pretended.CPUS}, {rate}, {folder!r})")
        heard = kernel.heard(cell)
        lines = 0
        for kind, content in heard:
            if kind == "error":
                raise CellError(content["evalue"])
            lines += _lines(content["text"]) if kind == "stream" else 0
            if lines == ranks:
                break
        found.first_line = time.monotonic() - began
        time.sleep(1)  # in which everything is heard at once
        driver.begin()
        time.sleep(seconds)
        clock, *used = driver.used()
        found.kernel, found.bridge = (100 * each / clock for each in used)
        driver.begin()
        gate = Path(folder, "fail" if fails else "end")
        gate.touch()
        error = [content["ename"] for kind, content in heard if kind == "error"]
        found.end = time.time() - (float(Path(folder, "failed").read_text()) if fails else gate.stat().st_mtime)
        found.ending = sum(driver.used()[1:])
        if error != (["RankError"] if fails else []):
            raise CellError(str(error))
        if not fails:
            found.told = int(Path(folder, "told").read_text())
    return found


def _lines(text: str) -> int:
    """How many ranks' first lines a text shows."""
    spans = re.findall(rf"^\[([\d,-]+)\] {pretended.LINE}$", text, re.MULTILINE)
    runs = [[int(end) for end in run.split("-")] for each in spans for run in each.split(",")]
    return sum(run[-1] - run[0] + 1 for run in runs)


@contextlib.contextmanager
def _usual_limits() -> Iterator[None]:
    """As many open files as most systems let a process have until it asks for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def in_kernel(seconds: float) -> None:
    with _usual_limits():
        kernel = Kernel(timeout=600)
    with kernel:
        driver = Driver(int(kernel.run(_SETUP)))
        before = driver.kernel.memory_info().rss
        cold = launch(kernel, driver, MANY, 1, 1)
        warm = launch(kernel, driver, MANY, 1, seconds)
        failed = launch(kernel, driver, MANY, 1, 1, fails=True)
        memory = driver.kernel.memory_info().rss - before
        few = launch(kernel, driver, FEW, 10, seconds)
        arrived = int(kernel.run(_COUNT).split()[-1])
    table(
        "Without a browser",
        _HEAD,
        [
            cold.row("1,000 ranks, the first time"),
            warm.row("again"),
            failed.row("again, and one fails"),
            few.row("64 ranks × 10 metrics/s"),
        ],
    )
    print(f"\n  the kernel has grown by {memory / 2**20:.0f} MiB; {few.told} metrics told, {arrived} arrived")
    print()
    goal("the driver's CPU, 1,000 ranks", warm.driver, 30, "%")
    goal("from the call to the last rank's first line, 1,000 ranks", warm.first_line, 5, " s")
    goal("from a rank's failure to the cell's error, 1,000 ranks", failed.end, 2.5, " s")
    goal("the driver's CPU, 64 ranks", few.driver, 10, "%")
    goal("metrics lost, 64 ranks", few.told - arrived, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter")
    quick = parser.parse_args().quick
    warn_if_busy()
    with pretended.slurm():
        in_kernel(10 if quick else 30)


if __name__ == "__main__":
    main()
