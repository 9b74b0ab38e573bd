"""Every benchmark, one after the other, and `RESULTS.md` and `results.svg` from what they print.

.venv/bin/python benchmarks/run.py            # twenty minutes, on a machine that does nothing else
.venv/bin/python benchmarks/run.py cells      # this one alone; the others keep what `results.json` has of them
.venv/bin/python benchmarks/run.py --quick    # some minutes; shows that all of them run
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
from common import QUIET, busy_part

FOLDER = Path(__file__).parent
NAMES = (
    *(
        "launch",
        "payload",
        "cells",
        "map",
        "sweep",
        "progress",
        "stalls",
        "flamegraph",
        "step",
        "train",
        "metrics",
        "cli",
        "resume",
        "live",
        "scale",
        "lab",
    ),
    "builds",
    "cluster",
)
"""In the order of the README; `live`, `scale`, and `lab` need chromium."""
ELSEWHERE = {
    "builds": (".venv-cuda", "the command in benchmarks/README.md"),
    "cluster": (".venv-cluster", "scripts/test-cluster"),
}
"""What runs in an environment of its own, and the command that makes it; left out where that is not there."""
SHORTER = {"cli": ["--rounds", "2"], "launch": ["--picture", os.devnull]}
"""What stands for `--quick`, or comes with it, where that alone would not do."""
PACKAGES = ("torch", "accelerate", "lightning-fabric", "ipyparallel", "ipykernel", "jupyterlab", "numpy")
_GOAL = re.compile(r"^  (met|missed) +(.+): (-?[\d.e+-]+|nan)(\D*), at most (-?[\d.e+-]+)", re.MULTILINE)


@dataclass(frozen=True)
class Goal:
    """One line of a benchmark that says whether a goal was met."""

    benchmark: str
    met: bool
    what: str
    value: float
    limit: float
    unit: str

    def share(self) -> float:
        """The value as a part of its limit, up to 2; 2 too for none at all."""
        if self.value <= 0:
            return 0
        return min(self.value / self.limit, 2) if self.limit and self.value == self.value else 2


@dataclass(frozen=True)
class Run:
    """What came of one benchmark."""

    name: str
    code: int
    said: str
    seconds: float
    busy: float
    """The part of the machine's time that went to something else, before it."""
    quick: bool
    date: str

    def goals(self) -> list[Goal]:
        return [
            Goal(self.name, word == "met", what, float(value), float(limit), unit.strip())
            for word, what, value, unit, limit in _GOAL.findall(self.said)
        ]


def main() -> int:
    """Run those named on the command line, or all, and return 1 if one of them could not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; by default all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; the results are labeled so")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the results are written")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    names = arguments.names or NAMES
    kept = read(arguments.folder) if arguments.names else {}
    for name in names:
        kept[name] = run(name, arguments.quick)
        write(arguments.folder, kept)  # after each, so that nothing is lost if one is interrupted
    return int(any(kept[name].code for name in names))


def read(folder: Path) -> dict[str, Run]:
    """What came of each benchmark the last time."""
    try:
        found = json.loads((folder / "results.json").read_text())
    except FileNotFoundError:
        return {}
    return {each["name"]: Run(**each) for each in found}


def write(folder: Path, kept: Mapping[str, Run]) -> None:
    """Writes what is known of each, for machines and for people; `scripts/generate` copies the missed goals."""
    runs = [kept[name] for name in NAMES if name in kept]
    (folder / "results.json").write_text(json.dumps([asdict(each) for each in runs], indent=1) + "\n")
    (folder / "results.svg").write_text(draw([each for done in runs for each in done.goals()]))
    (folder / "RESULTS.md").write_text("\n".join(report(runs)))


def run(name: str, quick: bool) -> Run:
    """Runs one in a process of its own."""
    environment, maker = ELSEWHERE.get(name, ("", ""))
    python = str(FOLDER.parent / environment / "bin" / "python") if environment else sys.executable
    if not Path(python).exists():
        said = f"left out: {environment} is not there, which {maker} makes"
        return Run(name, 0, said, 0.0, 0.0, quick, time.strftime("%Y-%m-%d"))
    options = (["--quick"] if quick and name != "cli" else []) + (SHORTER.get(name, []) if quick else [])
    print(f"{name} …", flush=True)
    busy = busy_part()
    began = time.monotonic()
    done = subprocess.run(
        [python, str(FOLDER / f"{name}.py"), *options],
        cwd=FOLDER.parent,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout if done.returncode == 0 else f"{done.stdout}\n{done.stderr[-2000:]}"
    said = said.replace(f"{FOLDER.parent}/", "")
    seconds = round(time.monotonic() - began, 1)
    return Run(name, done.returncode, said.strip("\n"), seconds, busy, quick, time.strftime("%Y-%m-%d"))


def report(runs: Sequence[Run]) -> list[str]:
    """The lines of `RESULTS.md`."""
    cores = len(os.sched_getaffinity(0))
    busy = [each.name for each in runs if each.busy > QUIET]
    lines = ["# Results", ""]
    if quick := [each.name for each in runs if each.quick]:
        lines += [f"**A quick run** of {', '.join(quick)}, which shows that they run. Read no goal off it.", ""]
    if busy:
        lines += [f"**The machine had other work** before {', '.join(busy)}: their figures tell little.", ""]
    lines += ["| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in machine(cores).items()]
    lines += ["", "![each figure as a part of its goal](results.svg)", ""]
    lines += ["| benchmark | figure | value | at most | |", "|---|---|---|---|---|"]
    for goal in (each for done in runs for each in done.goals()):
        word = "met" if goal.met else "**missed**"
        lines.append(f"| {goal.benchmark} | {goal.what} | {goal.value:g} {goal.unit} | {goal.limit:g} | {word} |")
    for done in runs:
        failed = f", **ended with {done.code}**" if done.code else ""
        took = f"{done.date}, {done.seconds:.0f} s{failed}"
        lines += ["", f"## {done.name}", "", took, "", "```text", done.said, "```"]
    return [*lines, ""]


def machine(cores: int) -> dict[str, str]:
    """What they ran on."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "processor": f"{names[0] if names else platform.machine()}, {cores} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "packages": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def draw(goals: Sequence[Goal]) -> str:
    """A bar for each goal: its value as a part of what it may be at most, up to twice that."""
    row, left, width = 18, 430, 240
    height = row * (len(goals) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 90} {height}">',
        "<style>text { font: 11px sans-serif }</style>",
        f'<rect width="100%" height="{height}" fill="white"/>',
    ]
    for index, goal in enumerate(goals):
        top = index * row + 4
        share = goal.share()
        color = "#2e7d32" if goal.met else "#b3261e"
        text = f"{goal.benchmark}: {goal.what}".replace("&", "&amp;").replace("<", "&lt;")
        parts += [
            f'<text x="{left - 8}" y="{top + 11}" text-anchor="end">{text}</text>',
            f'<rect x="{left}" y="{top}" width="{share * width / 2:.1f}" height="{row - 5}" fill="{color}"/>',
            f'<text x="{left + share * width / 2 + 5:.1f}" y="{top + 11}">{goal.value:g} {goal.unit}</text>',
        ]
    middle = left + width / 2
    parts.append(f'<path d="M{middle} 0V{height}" stroke="#444" stroke-dasharray="3 3"/>')
    parts.append(f'<text x="{middle + 4}" y="{height - 4}">goal</text></svg>\n')
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
