"""What the benchmarks share: Jupyter kernels, contenders that take turns, and figures with their goals."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from notebook_accel.launch.engines import base_server
from tests.live_notebook import Cell, KernelDied, Notebook

PACKAGES = {"notebook-accel": "notebook_accel", "Accelerate": "accelerate"}
IMPORTS = {name: f"from {package} import notebook_launcher" for name, package in PACKAGES.items()}


@contextlib.contextmanager
def with_base_server() -> Iterator[None]:
    """Kernels and commands find a base server in this context; elsewhere, each imports torch by itself."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        try:
            os.environ.update({base_server.VARIABLE: "1", "TMPDIR": folder, "NOTEBOOK_ACCEL_STATE": folder})
            base_server.start(os.environ)
            while base_server.of_this_process() is None:
                time.sleep(0.05)
            yield
            base_server.stop()
        finally:
            os.environ.clear()
            os.environ.update(before)


class CellError(Exception):
    """A cell has failed, or has not ended in time."""


class Kernel:
    """A Jupyter kernel, driven as a front end does; all that it has started ends with it."""

    def __init__(self, timeout: float = 600) -> None:
        self._timeout = timeout
        """Seconds that a cell may take."""
        found = {name: os.environ[name] for name in (base_server.VARIABLE, "TMPDIR") if name in os.environ}
        self.notebook = Notebook(env={base_server.VARIABLE: "0", **found})

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        left = self.notebook.processes()
        self.notebook.close()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.notebook.clean()

    def memory(self) -> int:
        """The bytes of memory of the kernel and all that comes from it; what several share counts once."""
        total = 0
        for pid in (self.notebook.pid, *self.notebook.pids()):
            with contextlib.suppress(OSError):  # it has ended
                summary = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += sum(int(line.split()[1]) * 1024 for line in summary.splitlines() if line.startswith("Pss:"))
        return total

    def run(self, code: str) -> str:
        """Runs a cell to its end, and returns what it has printed."""
        return self.finish(self.begin(code))

    def begin(self, code: str) -> Cell:
        """Starts a cell."""
        return self.notebook.begin(code)

    def finish(self, cell: Cell) -> str:
        """Waits for a cell to end. The wait is over as soon as the front end would show it as ended."""
        try:
            self.notebook.finish(cell, timeout=self._timeout)
        except (TimeoutError, KernelDied) as error:
            raise CellError(f"a cell has not ended after {self._timeout:.0f} s: {error}") from None
        if cell.error:
            raise CellError(f"{cell.error}: {cell.error_text}")
        return cell.stdout

    def first_rank(self, function: Callable[..., Any], *arguments: object, ranks: int = 1, **options: object) -> Any:
        """Launches a function of a benchmark's file with these arguments, and returns what rank 0 does, from JSON."""
        module, name = function.__module__, function.__name__
        call = f"notebook_launcher({module}.{name}, {arguments!r}, {ranks}, device='cpu', **{options!r})[0]"
        imports = f"import json, {module}\nfrom notebook_accel import notebook_launcher"
        printed = self.run(f"{imports}\nprint(json.dumps({call}, default=lambda each: each.values))")
        return json.loads(printed.splitlines()[-1])

    def spreads(self, function: Callable[..., Any], *arguments: object, ranks: int = 1) -> dict[str, Spread]:
        """The same for a function that ends in `in_turn`."""
        return {name: Spread(found) for name, found in self.first_rank(function, *arguments, ranks=ranks).items()}


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else float("nan")

    def over(self, other: Spread) -> Spread:
        """The ratio of each measurement to the one that was made in turn with it."""
        return Spread([mine / theirs for mine, theirs in zip(self.values, other.values, strict=False)])

    def beyond(self, other: Spread) -> Spread:
        """The difference between each measurement and the one that was made in turn with it."""
        return Spread([mine - theirs for mine, theirs in zip(self.values, other.values, strict=False)])

    def text(self, unit: float = 1e-3, digits: int = 0) -> str:
        """`median (least-most)`, in units of so many seconds or bytes."""
        if not self.values:
            return "-"
        middle, *ends = (f"{value / unit:.{digits}f}" for value in (self.median, min(self.values), max(self.values)))
        return middle if len(self.values) == 1 else f"{middle} ({'-'.join(ends)})"

    def ratio(self) -> str:
        return self.text(1, 2)


def in_turn(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    meet: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Spread]:
    """Seconds of each contender; one of each in a round, so that a slow moment hits all of them.

    Args:
        contenders: What is timed, by name.
        rounds: How often, after one round that warms up.
        meet: Lets ranks wait for each other, before and after.
        clock: What is measured; with `time.process_time`, it depends less on what else the machine does.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            meet()
            began = clock()
            contenders[name]()
            meet()
            if turn:
                times[name].append(clock() - began)
    return {name: Spread(found) for name, found in times.items()}


def port_argument(name: str) -> str:
    """A free port for a launch, as the last argument of a call: Accelerate always uses the same one otherwise."""
    if name != "Accelerate":
        return ""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f", use_port={probe.getsockname()[1]}"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table, its first column to the left and the others to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print(f"\n{title}")
    for line in lines:
        first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(["  " + first.strip().ljust(widths[0]), *rest]))


def versus(
    title: str, sides: tuple[str, str], rows: Mapping[str, tuple[Spread, Spread]], unit: float = 1e-3, digits: int = 0
) -> None:
    """Prints what two sides take, in units of so many seconds or bytes, and the ratio of the first to the other."""
    lines = [
        [what, mine.text(unit, digits), theirs.text(unit, digits), mine.over(theirs).ratio()]
        for what, (mine, theirs) in rows.items()
    ]
    table(title, ["", *sides, "ratio"], lines)


def goal(what: str, value: float, limit: float, unit: str = "") -> None:
    """Prints one goal line. A figure that could not be had is `nan`, which meets nothing."""
    print(f"  {'met   ' if value <= limit else 'missed'}  {what}: {value:.3g}{unit}, at most {limit:g}{unit}")
