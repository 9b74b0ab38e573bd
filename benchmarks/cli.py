"""How long the command line takes: its help, and from `launch` to the line after `import torch`, beside torchrun.

Also with the ranks drawn in a terminal. CPU time is that of all processes together, and means something on a busy
machine too.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import Spread, goal, table, warn_if_busy, with_base_server

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


def elapsed(command: Sequence[str]) -> tuple[float, float]:
    """Seconds, and CPU seconds."""
    began = time.perf_counter()
    used = run(command)
    return time.perf_counter() - began, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    warn_if_busy()
    elapsed([sys.executable, "-c", "import torch.distributed.run"])  # reads everything into memory once
    for ranks, most in GOALS.items():
        compare(ranks, most, arguments.rounds)
    alone = [elapsed([OURS, "--help"]) for _ in range(arguments.rounds)]
    wall, used = (Spread(column) for column in zip(*alone, strict=True))
    table("help, ms", ["", "notebook-accel", "CPU time"], [["notebook-accel --help", wall.text(), used.text()]])
    goal("notebook-accel --help", wall.median, 0.15, " s")


def compare(ranks: int, most: float, times: int) -> None:
    """Measures launches beside torchrun's, of whose time the first line may take `most`."""
    launch = [OURS, "launch", "--cpu", f"--num_processes={ranks}"]
    torchrun = [str(BIN / "torchrun"), "--standalone", f"--nproc-per-node={ranks}"]
    with tempfile.TemporaryDirectory() as name, with_base_server():
        folder = Path(name)
        rounds = [
            (
                *start_up(launch, ranks, folder),
                *start_up(launch, ranks, folder, in_terminal=True),
                *start_up(torchrun, ranks, folder),
                *start_up(launch, ranks, folder, shared=True),
            )
            for _ in range(times)
        ]
    columns = [Spread(column) for column in zip(*rounds, strict=True)]
    plain, drawn, theirs, shared = columns[:3], columns[3:6], columns[6:9], columns[9:]
    rows = [
        [what, *(each.text() for each in (*own, their)), *(each.over(their).ratio() for each in own)]
        for what, their, *own in zip(
            ("to the script's first line", "to the end", "CPU time of all"), theirs, plain, drawn, shared, strict=True
        )
    ]
    head = ["notebook-accel", "drawn", "base server", "torchrun", "ratio", "drawn, ratio", "base server, ratio"]
    table(f"launch of {ranks} ranks, ms", ["", *head], rows)
    print()
    goal(f"first line of {ranks} ranks, of torchrun's time", plain[0].over(theirs[0]).median, most)
    goal(f"first line of {ranks} ranks in a terminal, of torchrun's time", drawn[0].over(theirs[0]).median, most)
    ratio = shared[0].over(theirs[0]).median
    goal(f"first line of {ranks} ranks with a base server, of torchrun's time", ratio, SHARED_GOALS[ranks])


if __name__ == "__main__":
    main()
