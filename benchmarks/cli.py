"""How long the command line takes: its help, and from `launch` to the line after `import torch`, beside torchrun.

Also with the ranks drawn in a terminal. CPU time is that of all processes together, and means something on a busy
machine too.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import Spread, goal, table, with_base_server

from notebook_accel.launch.engines import base_server

BIN = Path(sys.executable).parent
OURS = str(BIN / "notebook-accel")
GOALS = {2: 0.7, 8: 0.35}
"""By the number of ranks, the most of torchrun's time that the first line may take."""
SHARED_GOALS = {2: 0.35, 8: 0.2}
"""The same with a base server."""
SCRIPT = """
import sys, time, torch
with open(sys.argv[1], "a") as file:
    file.write(f"{time.time()}\\n")
"""


def run(command: Sequence[str], *, in_terminal: bool = False, shared: bool = False) -> float:
    """Runs a command to its end, which may find a base server; returns the CPU seconds of all its processes."""
    ours, theirs = pty.openpty() if in_terminal else (-1, subprocess.DEVNULL)
    environment = {**os.environ, "TERM": "xterm", base_server.VARIABLE: str(int(shared))}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    if in_terminal:
        os.close(theirs)
        try:
            while os.read(ours, 2**16):
                pass
        except OSError:  # nobody has the other side any more
            pass
        os.close(ours)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def start_up(
    command: Sequence[str], ranks: int, folder: Path, *, in_terminal: bool = False, shared: bool = False
) -> tuple[float, float, float]:
    """Seconds until the last rank has imported torch, and until the command has ended; CPU seconds."""
    script, times = folder / "script.py", folder / "times"
    script.write_text(SCRIPT)
    times.unlink(missing_ok=True)
    began = time.time()
    used = run([*command, str(script), str(times)], in_terminal=in_terminal, shared=shared)
    ended = time.time()
    begun = [float(line) for line in times.read_text().split()]
    assert len(begun) == ranks
    return max(begun) - began, ended - began, used


def measure(*, quick: bool) -> None:
    rounds = 2 if quick else 9
    run([sys.executable, "-c", "import torch.distributed.run"])  # reads everything into memory once
    for ranks in GOALS:
        compare(ranks, rounds)
    times, used = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        used.append(run([OURS, "--help"]))
        times.append(time.perf_counter() - began)
    row = ["notebook-accel --help", Spread(times).text(), Spread(used).text()]
    table("help, ms", ["", "notebook-accel", "CPU time"], [row])
    goal("notebook-accel --help", Spread(times).median, 0.15, " s")


def compare(ranks: int, rounds: int) -> None:
    """Measures launches beside torchrun's."""
    launch = [OURS, "launch", "--cpu", f"--num_processes={ranks}"]
    torchrun = [str(BIN / "torchrun"), "--standalone", f"--nproc-per-node={ranks}"]
    ways: dict[str, dict[str, Any]] = {"torchrun": {}, "notebook-accel": {}}
    ways |= {"in a terminal": {"in_terminal": True}, "with a base server": {"shared": True}}
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder, with_base_server():
        for _ in range(rounds):
            for way, options in ways.items():
                command = torchrun if way == "torchrun" else launch
                found[way].append(start_up(command, ranks, Path(folder), **options))
    columns = {way: [Spread(column) for column in zip(*rows, strict=True)] for way, rows in found.items()}
    peer = columns["torchrun"]
    rows = [
        [
            way,
            *(each.text() for each in mine),
            *(each.over(their).ratio() for each, their in zip(mine, peer, strict=True)),
        ]
        for way, mine in columns.items()
    ]
    head = ["first line", "end", "CPU time of all"]
    table(f"launch of {ranks} ranks, ms", ["", *head, *(f"{what}, ratio" for what in head)], rows)
    print()
    for way, mine in columns.items():
        if way != "torchrun":
            where = "" if way == "notebook-accel" else f" {way}"
            most = (SHARED_GOALS if way == "with a base server" else GOALS)[ranks]
            ratio = mine[0].over(peer[0]).median
            goal(f"first line of {ranks} ranks{where}, of torchrun's time", ratio, most)
