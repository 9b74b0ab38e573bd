"""What a launch on two Ray nodes on loopback takes beside one on this machine alone: 4 ranks either way, in turn.

It runs in the environment of `scripts/test-cluster`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import CellError, Kernel, Spread, goal, versus

from tests.cluster.conftest import Cluster
from tests.live_notebook import Cell, wait_until

RANKS = 4
SETTLE = 0.3
"""Seconds between two launches, in which the servers get ready for the next."""
TIMEOUT = 120.0
"""Seconds for a cell; the first launch waits for the agents."""
WORK = """
import os, time
from notebook_accel import notebook_launcher

def speak(folder):
    with open(f"{folder}/{os.environ['RANK']}", "w") as file:
        file.write(str(time.perf_counter()))
    print("a line", flush=True)

def join(folder):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    speak(folder)

def wait(folder):
    with open(f"{folder}/{os.environ['RANK']}", "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.01)

def train(folder):
    from notebook_accel import Accelerator
    Accelerator()
    speak(folder)
"""
HERE = "num_processes=4, device='cpu', cluster='', num_nodes=1"


@dataclass(frozen=True)
class Launch:
    """Seconds from the call."""

    begun: float
    """The function has begun on every rank."""
    line: float
    """A front end has the first line of a rank."""
    finished: float
    """It has seen the cell end."""


class Contender:
    """Launches from one kernel, to one place."""

    def __init__(self, kernel: Kernel, where: str) -> None:
        self._kernel = kernel
        self._where = where

    def launch(self, function: str) -> Launch:
        """Launches, and waits until the cell has ended."""
        with self._begun(function) as (cell, folder):
            self._kernel.notebook.read_until(cell, "a line", timeout=TIMEOUT)
            line = time.perf_counter()  # one clock for all processes
            call = float(self._kernel.finish(cell).split("called", 1)[1].split()[0])
            finished = time.perf_counter()
            begun = [float(path.read_text()) for path in folder.iterdir()]
        if len(begun) != RANKS:
            raise CellError(f"{len(begun)} of {RANKS} ranks have run")
        return Launch(max(begun) - call, line - call, finished - call)

    def interrupt(self) -> float:
        """Seconds from an interrupt of the kernel until the last rank is gone."""
        with self._begun("wait") as (cell, folder):
            wait_until(lambda: len(read(folder)) == RANKS and "" not in read(folder), TIMEOUT)
            pids = read(folder)
            began = time.perf_counter()
            self._kernel.notebook.interrupt()
            while any(map(is_alive, pids)):
                time.sleep(0.001)
            gone = time.perf_counter() - began
            with contextlib.suppress(CellError):  # that it was interrupted
                self._kernel.finish(cell)
        return gone

    @contextlib.contextmanager
    def _begun(self, function: str) -> Iterator[tuple[Cell, Path]]:
        """A cell that launches, and the folder that the ranks write to."""
        time.sleep(SETTLE)
        with tempfile.TemporaryDirectory() as folder:
            call = f"notebook_launcher({function}, ({folder!r},), {self._where})"
            yield self._kernel.begin(f"print('called', time.perf_counter(), flush=True)\n{call}"), Path(folder)


def read(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def measure(*, quick: bool) -> None:
    rounds = 5 if quick else 25
    with tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as home:
        cluster = Cluster(home)
        os.environ |= cluster.environ
        there = f"num_processes=4, device='cpu', cluster={cluster.address!r}, num_nodes=2"
        try:
            with Kernel(TIMEOUT) as kernel:
                kernel.run(WORK)
                compare([Contender(kernel, there), Contender(kernel, HERE)], rounds)
        finally:
            cluster.close()


def compare(both: Sequence[Contender], rounds: int) -> None:
    """Launches to both, one right after the other in every round, and prints what it finds."""
    for function in ("speak", "speak", "join", "train"):  # the first launches start agents and servers
        for contender in both:
            contender.launch(function)
    rows = {}
    functions = {"speak": "a line", "join": "a collective, and a line", "train": "Accelerator(), and a line"}
    for function, what in functions.items():
        made = [[each.launch(function) for each in both] for _ in range(rounds if function == "speak" else rounds // 2)]
        for field, meaning in (("begun", "begun on every rank"), ("line", "first line"), ("finished", "cell finished")):
            there, here = (Spread([getattr(each, field) for each in column]) for column in zip(*made, strict=True))
            rows[f"{what}: {meaning}"] = (there, here)
    sides = ("2 nodes × 2 ranks", "this machine × 4")
    versus(f"Warm launch of {RANKS} ranks, {rounds} rounds, ms since the call", sides, rows)
    gone = [[each.interrupt() for each in both] for _ in range(max(3, rounds // 3))]
    there, here = (Spread(column) for column in zip(*gone, strict=True))
    versus("Since an interrupt, ms", sides, {"ranks gone": (there, here)})
    print()
    goal("first line, 2 nodes × 2 ranks", 1e3 * rows["a line: first line"][0].median, 60, " ms")
    goal("from an interrupt to the last rank's end", max(there.values), 1, " s")
