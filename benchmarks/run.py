"""Runs benchmarks, one after the other, and writes what they print into `results.json` and `RESULTS.md`.

.venv/bin/python benchmarks/run.py                # all, in half an hour, on a machine that does nothing else
.venv/bin/python benchmarks/run.py cells          # this one; the others keep what `results.json` has of them
.venv/bin/python benchmarks/run.py --quick cells  # fewer rounds, to see that it works: writes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from notebook_accel.launch.engines import base_server

FOLDER = Path(__file__).parent
NAMES = (
    *("launch", "payload", "cells", "map", "sweep", "watching", "training", "cli", "resume", "live", "lab"),
    *("builds", "cluster", "tpu"),
)
"""In the order of the README. Each is the function `measure` of the file with this name, which takes `quick`."""
ELSEWHERE = {
    "builds": (".venv-cuda", "the command in benchmarks/README.md"),
    "cluster": (".venv-cluster", "scripts/test-cluster"),
    "tpu": (".venv-tpu", "scripts/test-tpu"),
}
"""What runs in an environment of its own, and the command that makes it. Where that is not there, it is left out."""
QUIET = 0.15
"""The part of a machine's time that may go to something else."""
PACKAGES = ("torch", "accelerate", "lightning-fabric", "ipyparallel", "ipykernel", "jupyterlab", "numpy")
_GOAL = re.compile(r"^  (met|missed) +(.+): (-?[\d.e+-]+|nan)(\D*), at most (-?[\d.e+-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """What came of one benchmark."""

    name: str
    code: int
    said: str
    seconds: float
    busy: float
    """The part of the machine's time that went to something else, before it."""
    date: str


def main() -> int:
    """Run those named on the command line, or all, and return 1 if one of them could not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; by default all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    results = FOLDER / "results.json"
    kept = {each["name"]: Run(**each) for each in json.loads(results.read_text())}
    failed = False
    for name in arguments.names or NAMES:
        environment, maker = ELSEWHERE.get(name, ("", ""))
        python = FOLDER.parent / environment / "bin" / "python" if environment else Path(sys.executable)
        if not python.exists():
            print(f"{name} is left out: {environment} is not there, which {maker} makes")
            continue
        kept[name] = run(name, python, quick=arguments.quick)
        failed |= bool(kept[name].code)
        if not arguments.quick:  # after each, so that nothing is lost if one is interrupted
            runs = [kept[each] for each in NAMES if each in kept]
            results.write_text(json.dumps([asdict(each) for each in runs], indent=1) + "\n")
            (FOLDER / "RESULTS.md").write_text("\n".join(report(runs)))
    return failed


def run(name: str, python: Path, *, quick: bool) -> Run:
    """Runs one in a process of its own, and passes on what it prints."""
    print(f"== {name}", flush=True)
    # The load average would still count a benchmark that ended a minute ago.
    busy = psutil.cpu_percent(interval=3) / 100
    if busy > QUIET:
        print(f"The machine has other work ({busy:.0%} of its time): read no goal off this run.", flush=True)
    file = "launch" if name == "builds" else name
    began = time.monotonic()
    with subprocess.Popen(
        [python, "-u", "-c", f"import {file}; {file}.measure(quick={quick})"],
        env=_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.replace(f"{FOLDER.parent}/", ""))
    seconds = round(time.monotonic() - began, 1)
    return Run(name, process.returncode, "".join(lines).strip("\n"), seconds, busy, time.strftime("%Y-%m-%d"))


def _environment() -> dict[str, str]:
    """What a benchmark inherits."""
    # An installed package has its byte code; a checkout is to have it too.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Unless a benchmark is about the base server, each kernel and command imports torch by itself.
    return {**kept, "PYTHONPATH": f"{FOLDER}:{FOLDER.parent}", base_server.VARIABLE: "0"}


def report(runs: Sequence[Run]) -> list[str]:
    """The lines of `RESULTS.md`; `scripts/generate` copies the missed goals from there."""
    lines = ["# Results", ""]
    if busy := [each.name for each in runs if each.busy > QUIET]:
        lines += [f"**The machine had other work** before {', '.join(busy)}: their figures tell little.", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in machine().items()]
    lines += ["", "| benchmark | figure | value | at most | |", "|---|---|---|---|---|"]
    for done in runs:
        for met, what, value, unit, limit in _GOAL.findall(done.said):
            word = "met" if met == "met" else "**missed**"
            lines.append(f"| {done.name} | {what} | {value} {unit.strip()} | {limit} | {word} |")
    for done in runs:
        failed = f", **ended with {done.code}**" if done.code else ""
        took = f"{done.date}, {done.seconds:.0f} s{failed}"
        lines += ["", f"## {done.name}", "", took, "", "```text", done.said, "```"]
    return [*lines, ""]


def machine() -> Mapping[str, str]:
    """What they ran on."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": f"{names[0] if names else platform.machine()}, {cores} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


if __name__ == "__main__":
    sys.exit(main())
