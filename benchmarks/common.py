"""What the benchmarks share: Jupyter kernels to launch from, and figures printed as ratios."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from notebook_accel.launch.engines import base_server

PACKAGES = {"notebook-accel": "notebook_accel", "Accelerate": "accelerate"}
IMPORTS = {name: f"from {package} import notebook_launcher" for name, package in PACKAGES.items()}
_MARK = "BENCHMARK_OF_NOTEBOOKS"
"""Marks, in the environment, the processes that come from a kernel.

It lacks the prefix of settings, since each launch compares such names with those of settings.
"""


# Unless a benchmark is about the base server, each kernel and command imports torch by itself.
os.environ[base_server.VARIABLE] = "0"


@contextlib.contextmanager
def with_base_server() -> Iterator[list[int]]:
    """Kernels and commands find a base server in this context. Yields the process IDs of its halves."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        try:
            os.environ.update({base_server.VARIABLE: "1", "TMPDIR": folder, "NOTEBOOK_ACCEL_STATE": folder})
            # As a kernel of the class below.
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
            base_server.start(os.environ)
            while (found := base_server.of_this_process()) is None:
                time.sleep(0.05)
            half = psutil.Process(found["pid"])
            yield [half.pid, *(child.pid for child in half.children())]
            base_server.stop()
        finally:
            os.environ.clear()
            os.environ.update(before)


class CellError(Exception):
    """A cell has failed, or has not ended in time."""


class Kernel:
    """A Jupyter kernel, driven as a front end does; all that it has started ends with it."""

    def __init__(self, timeout: float, python: str = sys.executable) -> None:
        self._timeout = timeout
        """Seconds that a cell may take."""
        self._folder = tempfile.TemporaryDirectory()
        self._mark = f"{_MARK}={self._folder.name}"
        # Unix sockets: a kernel warns about TCP.
        self._manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{self._folder.name}/kernel.json"
        )
        assert self._manager.kernel_spec is not None
        self._manager.kernel_spec.argv[0] = python
        # An installed package has its byte code; a checkout is to have it too.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._manager.start_kernel(env={**environment, _MARK: self._folder.name})
        self._client: BlockingKernelClient = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_channels()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._manager.shutdown_kernel(now=True)
        self._folder.cleanup()

    def processes(self) -> list[int]:
        """The kernel and all that comes from it, whoever its parent is now."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def memory(self) -> int:
        """The bytes of memory that they have; what several share counts once."""
        total = 0
        for pid in self.processes():
            with contextlib.suppress(OSError):  # it has ended
                total += _shared_memory(pid)
        return total

    def run(self, code: str) -> str:
        """Runs a cell to its end, and returns what it has printed."""
        return self.finish(self.begin(code))

    def begin(self, code: str) -> str:
        """Starts a cell; returns its message's name."""
        return self._client.execute(code)

    def finish(self, message: str) -> str:
        """Waits for a cell to end. The wait is over as soon as the front end would show it as ended."""
        printed, error = "", ""
        for kind, content in self.messages(message):
            if kind == "stream" and content["name"] == "stdout":
                printed += content["text"]
            elif kind == "error":
                error = f"{content['ename']}: {content['evalue']}"
        if error:
            raise CellError(error)
        return printed

    def interrupt(self) -> None:
        """Interrupts the cell that runs."""
        self._manager.interrupt_kernel()

    def messages(self, message: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The messages of a cell from now on until it ends, each by its kind and content."""
        deadline = time.monotonic() + self._timeout
        while True:
            kind, content = self._next(message, deadline)
            if kind == "status" and content["execution_state"] == "idle":
                return
            yield kind, content

    def _next(self, message: str, deadline: float) -> tuple[str, dict[str, Any]]:
        while True:
            try:
                found = self._client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise CellError(f"a cell has not ended after {self._timeout:.0f} s") from None
            if found["parent_header"].get("msg_id") == message:
                return found["msg_type"], found["content"]


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
    meet: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each contender, on a rank; one of each in a round, so that a slow moment hits all alike.

    Args:
        contenders: What is timed, by name.
        rounds: How often, after one round that warms up.
        meet: Lets the ranks wait for each other, before and after.
        clock: What is measured; with `time.process_time`, it depends less on what else the machine does.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name in sorted(contenders, reverse=bool(turn % 2)):
            meet()
            began = clock()
            contenders[name]()
            meet()
            if turn:
                times[name].append(clock() - began)
    return times


def warn_if_busy() -> None:
    """Says so if the machine has other work, which slows whatever needs all cores at once."""
    if (busy := busy_part()) > QUIET:
        print(f"The machine has other work ({busy:.0%} of its time): read no goal off this run.")


QUIET = 0.15
"""The part of a machine's time that may go to something else."""


def busy_part() -> float:
    """The part of all cores' time that goes to whatever runs now, over three seconds.

    The load average would still count a benchmark that ended a minute ago.
    """
    return psutil.cpu_percent(interval=3) / 100


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


def goal(what: str, value: float, limit: float, unit: str = "") -> None:
    """Prints one goal line. A figure that could not be had is `nan`, which meets nothing."""
    print(f"  {'met   ' if value <= limit else 'missed'}  {what}: {value:.3g}{unit}, at most {limit:g}{unit}")


def _shared_memory(pid: int) -> int:
    """The memory of a process, of each shared page only its share."""
    summary = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in summary.splitlines() if line.startswith("Pss:"))
