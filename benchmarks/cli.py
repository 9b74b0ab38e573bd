"""How long the command line takes: its help, and from `launch` to a script's first line, beside torchrun."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import Spread, goal, table, warn_if_busy

BIN = Path(sys.executable).parent
SCRIPT = """
import sys, time
with open(sys.argv[1], "a") as file:
    file.write(f"{time.time()}\\n")
"""


def start_up(command: Sequence[str], ranks: int, folder: Path) -> tuple[float, float]:
    """Seconds until the last rank has run the script's first line, and until the command has ended."""
    script, times = folder / "script.py", folder / "times"
    script.write_text(SCRIPT)
    times.unlink(missing_ok=True)
    began = time.time()
    subprocess.run([*command, str(script), str(times)], check=True, stderr=subprocess.DEVNULL)
    ended = time.time()
    begun = [float(line) for line in times.read_text().split()]
    assert len(begun) == ranks
    return max(begun) - began, ended - began


def elapsed(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    warn_if_busy()
    ours, ranks = str(BIN / "notebook-accel"), arguments.ranks
    launch = [ours, "launch", f"--num_processes={ranks}"]
    torchrun = [str(BIN / "torchrun"), "--standalone", f"--nproc-per-node={ranks}"]
    elapsed([sys.executable, "-c", "import torch.distributed.run"])  # reads everything into memory once
    rounds, alone = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            rounds.append((*start_up(launch, ranks, Path(folder)), *start_up(torchrun, ranks, Path(folder))))
            alone.append(elapsed([ours, "--help"]))
    first, whole, their_first, their_whole = (Spread(column) for column in zip(*rounds, strict=True))
    rows = [
        ["to the script's first line", first.text(), their_first.text(), first.over(their_first).ratio()],
        ["to the end", whole.text(), their_whole.text(), whole.over(their_whole).ratio()],
    ]
    table(f"launch of {ranks} ranks, ms", ["", "ours", "torchrun", "ratio"], rows)
    table("help, ms", ["", "ours"], [["notebook-accel --help", Spread(alone).text()]])
    print()
    goal("first line, of torchrun's time", first.over(their_first).median, 1.05)
    goal("notebook-accel --help", min(alone), 0.15, " s")


if __name__ == "__main__":
    main()
