"""Kills ranks of maps, and the processes that run them, at random moments: no value may be lost, or come twice.

`scripts/soak-map 200` kills 200 processes. A map saves its values to a folder; a process that is killed is followed by
another one that makes the same call. In the end each item has its value, and the file has one record for each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from notebook_accel.launch.driver import map_results

ITEMS = 3000
_MARK = "NOTEBOOK_ACCEL_SOAK"
_RANKS = 2
_ITEM_SECONDS = 0.002
_MOST_DELAY = 0.3
"""Seconds between two kills, at most."""
_DRIVER_CHANCE = 0.01
"""How likely it is that the process that runs the map is the victim."""
_TIMEOUT = 300.0
"""Seconds in which some value must come, however busy the machine is."""


def work(item: int) -> tuple[int, str]:
    """On a rank: a value that tells what it is of."""
    time.sleep(_ITEM_SECONDS)
    return item, f"value of {item}"


def drive(folder: str, pids: str) -> None:
    """PROCESS driver: makes the call, and names its ranks' processes while they run."""
    from notebook_accel import map_on_ranks

    job = map_on_ranks(work, range(ITEMS), checkpoint=folder, num_processes=_RANKS, device="cpu", block=False)
    path = Path(pids)
    while not job.wait(0.01):
        path.with_suffix(".new").write_text(" ".join(str(state.pid) for state in job.ranks if state.pid))
        path.with_suffix(".new").replace(path)
    values = job.result()
    assert not values.failures, values.failures[:3]
    assert list(values) == [(item, f"value of {item}") for item in range(ITEMS)]


@dataclass
class Report:
    """What a soak has found."""

    kills: Counter[str] = field(default_factory=Counter)
    maps: int = 0
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        killed = ", ".join(f"{count} times a {name}" for name, count in sorted(self.kills.items()))
        return "\n".join([f"{self.maps} maps of {ITEMS} items; killed {killed or 'nothing'}", *self.problems])


def soak(home: Path, seed: int, kills: int) -> Report:
    """Runs maps until so many processes have been killed."""
    chance, report = random.Random(seed), Report()
    environ = {**os.environ, "NOTEBOOK_ACCEL_STATE": str(home / "state"), _MARK: str(home)}
    while report.kills.total() < kills and not report.problems:
        folder = home / f"map-{report.maps}"
        report.maps += 1
        while not _run(folder, home / "pids", environ, chance, report, kills):
            pass
        if not report.problems:
            _check(folder, report)
        print(report.text(), flush=True)
    return report


def _run(folder: Path, pids: Path, environ: dict[str, str], chance: random.Random, report: Report, kills: int) -> bool:
    """Runs the process once; returns whether the map is done."""
    pids.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.map_soak", "--drive", str(folder), str(pids)]
    log = open(folder.with_suffix(".log"), "a")  # noqa: SIM115  # closed below
    driver = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    log.close()
    size, since = -1, time.monotonic()
    while driver.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(chance.random() * _MOST_DELAY)
            break
        if size != (size := _size(folder)):
            since = time.monotonic()
        elif time.monotonic() > since + _TIMEOUT:
            report.problems.append(f"no value has come for {_TIMEOUT:g} s, after {size} bytes")
            driver.kill()
            driver.wait()
            return True
        if report.kills.total() >= kills or not pids.exists():
            continue
        if chance.random() < _DRIVER_CHANCE:
            driver.kill()
            driver.wait()
            report.kills["driver"] += 1
            return False
        running = [int(pid) for pid in pids.read_text().split()]
        if running and _is_ours(victim := chance.choice(running), home=environ[_MARK]):
            os.kill(victim, signal.SIGKILL)
            report.kills["rank"] += 1
    if driver.returncode:
        report.problems.append(folder.with_suffix(".log").read_text()[-3000:])
    return True


def _size(folder: Path) -> int:
    """The size of the file of the values; 0 before it is there."""
    with contextlib.suppress(FileNotFoundError):
        return (folder / map_results.NAME).stat().st_size
    return 0


def _is_ours(pid: int, home: str) -> bool:
    """Whether the process is still there, rather than one of somebody else that has its number now."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).environ().get(_MARK) == home
    return False


def _check(folder: Path, report: Report) -> None:
    """Reads the file as it is: a record for each item, and no second one."""
    data = (folder / map_results.NAME).read_bytes()
    place, found = len(map_results.MAGIC), Counter[int]()
    while place < len(data):
        index, _, length, _ = map_results.RECORD.unpack_from(data, place)
        found[index] += 1
        place += map_results.RECORD.size + length
    if found != Counter(range(ITEMS)):
        wrong = {index: found[index] for index in range(ITEMS) if found[index] != 1}
        report.problems.append(f"items without one record each: {wrong}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        drive(*given.drive)
        return 0
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as home:
        report = soak(Path(home), seed, given.kills)
    print(report.text())
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
