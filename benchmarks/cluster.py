"""What a launch on two machines takes beside one on a single machine: two nodes on loopback, 4 ranks either way.

The nodes are Ray's; with `--ssh`, each is an sshd.

Run it in the environment of `scripts/test-cluster`: `.venv-cluster/bin/python benchmarks/cluster.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import CellError, Kernel, Spread, goal, table, warn_if_busy

RANKS = 4
SETTLE = 0.3
"""Seconds between two launches, in which the servers get ready for the next."""
TIMEOUT = 120.0
"""Seconds for a cell; the first launch waits for the agents."""
MISSING = (
    "This benchmark needs Ray. `scripts/test-cluster` makes an environment that has it, once; then: "
    ".venv-cluster/bin/python benchmarks/cluster.py"
)
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
NOT_YET = math.nan


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

    def launch(self, function: str = "speak") -> Launch:
        """Launches, and waits until the cell has ended."""
        with tempfile.TemporaryDirectory() as folder:
            message = self._begin(function, folder)
            call, line = NOT_YET, NOT_YET
            for kind, content in self._kernel.messages(message):
                if kind == "error":
                    raise CellError(f"{content['ename']}: {content['evalue']}")
                text = content["text"] if kind == "stream" else ""
                if "called" in text:
                    call = float(text.split("called", 1)[1].split()[0])
                if "a line" in text and math.isnan(line):
                    line = time.perf_counter()  # one clock for all processes
            finished = time.perf_counter()
            begun = [float(path.read_text()) for path in Path(folder).iterdir()]
        if len(begun) != RANKS:
            raise CellError(f"{len(begun)} of {RANKS} ranks have run")
        return Launch(max(begun) - call, line - call, finished - call)

    def interrupt(self) -> float:
        """Seconds from an interrupt of the kernel until the last rank is gone."""
        with tempfile.TemporaryDirectory() as folder:
            message = self._begin("wait", folder)
            while len(pids := [path.read_text() for path in Path(folder).iterdir()]) < RANKS or "" in pids:
                time.sleep(0.01)
            began = time.perf_counter()
            self._kernel.interrupt()
            while any(map(_is_alive, pids)):
                time.sleep(0.001)
            gone = time.perf_counter() - began
            with contextlib.suppress(CellError):  # that it was interrupted
                self._kernel.finish(message)
        return gone

    def _begin(self, function: str, folder: str) -> str:
        time.sleep(SETTLE)
        call = f"notebook_launcher({function}, ({folder!r},), {self._where})"
        return self._kernel.begin(f"print('called', time.perf_counter(), flush=True)\n{call}")


def _is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def contenders(*, ssh: bool) -> Iterator[tuple[Contender, Contender]]:
    """A cluster of two nodes and this machine, both warm, launched to from one kernel."""
    with tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as home:
        cluster, address = _hosts(home) if ssh else _ray(home)
        os.environ |= cluster.environ
        there = f"num_processes=4, device='cpu', cluster={address!r}, num_nodes=2"
        try:
            with Kernel(TIMEOUT) as kernel:
                kernel.run(WORK)
                found = Contender(kernel, there), Contender(kernel, HERE)
                for function in ("speak", "speak", "join", "train"):
                    for contender in found:
                        contender.launch(function)
                yield found
        finally:
            cluster.close()


def _ray(home: str) -> tuple[Any, str]:
    from tests.cluster.conftest import Cluster

    found = Cluster(home)
    return found, found.address


def _hosts(home: str) -> tuple[Any, str]:
    from tests.cluster.ssh.rig import NODES, Hosts

    return Hosts(Path(home)), f"ssh://{','.join(NODES)}"


def in_turn(both: Sequence[Contender], rounds: int, function: str) -> tuple[list[Launch], list[Launch]]:
    """Launches of both, one right after the other in every round."""
    made = [[contender.launch(function) for contender in both] for _ in range(rounds)]
    cluster, here = map(list, zip(*made, strict=True))
    return cluster, here


def compare(what: str, cluster: Sequence[Launch], here: Sequence[Launch]) -> list[tuple[str, ...]]:
    """The rows of one function."""
    rows = []
    for field, meaning in (("begun", "begun on every rank"), ("line", "first line"), ("finished", "cell finished")):
        there, local = (Spread([getattr(launch, field) for launch in launches]) for launches in (cluster, here))
        rows.append((f"{what}: {meaning}", there.text(), local.text(), there.over(local).ratio()))
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 25")
    parser.add_argument("--ssh", action="store_true", help="over ssh, which takes no Ray")
    given = parser.parse_args()
    rounds = 5 if given.quick else 25
    if not given.ssh and importlib.util.find_spec("ray") is None:
        sys.exit(MISSING)
    warn_if_busy()
    with contenders(ssh=given.ssh) as both:
        lines = in_turn(both, rounds, "speak")
        joined = in_turn(both, rounds // 2, "join")
        trained = in_turn(both, rounds // 2, "train")
        gone = [[contender.interrupt() for contender in both] for _ in range(3 if rounds == 5 else 9)]
    head = ["since the call, ms: median (least-most)", "2 nodes × 2 ranks", "this machine × 4", "ratio"]
    rows = [
        *compare("a line", *lines),
        *compare("a collective, and a line", *joined),
        *compare("Accelerator(), and a line", *trained),
    ]
    table(f"Warm launch of {RANKS} ranks, {rounds} rounds", head, rows)
    there, local = (Spread(column) for column in zip(*gone, strict=True))
    rows = [("ranks gone", there.text(), local.text(), there.over(local).ratio())]
    table("Since an interrupt", ["ms: median (least-most)", *head[1:]], rows)
    print()
    goal("first line, 2 nodes × 2 ranks", 1e3 * Spread([each.line for each in lines[0]]).median, 60, " ms")
    goal("from an interrupt to the last rank's end", max(there.values), 1, " s")


if __name__ == "__main__":
    main()
