"""How long a launch takes, compared with Accelerate's `notebook_launcher`: warm, first, and with many ranks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import IMPORTS, PACKAGES, CellError, Kernel, Spread, goal, port_argument, table, versus, with_base_server

SIDES = ("notebook-accel", "Accelerate")
SETTLE = 0.25
"""Seconds between two launches; a reader's pause is longer."""
_SETTLE_MANY = 1.0
"""The same with many ranks, whose successors are forked meanwhile: the next launch, also the peer's, runs alone."""
IDLE = 5.0
"""Seconds for which a kernel is idle before a first launch."""
TIMEOUT = 30.0
"""Seconds after which a launch counts as hung."""
_MANY = 16
"""The number of ranks from which on a launch has a goal of its own."""
STALL = 1.0
"""Seconds above the median from which on a launch counts as stalled."""

# The same functions for both packages. They write to a file, since Accelerate returns nothing from a rank.
WORK = """
import time

def work(path):
    began = time.perf_counter()
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    done = time.perf_counter()
    with open(path, "a") as file:
        file.write(f"{{began}} {{done}}\\n")

def construct(path):
    began = time.perf_counter()
    from {package} import Accelerator
    Accelerator(cpu=True)
    done = time.perf_counter()
    with open(path, "a") as file:
        file.write(f"{{began}} {{done}}\\n")

def nothing(path):
    with open(path, "a") as file:
        file.write(f"{{time.perf_counter()}} {{time.perf_counter()}}\\n")

def idle(path):
    import time
    from pathlib import Path
    def private():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    time.sleep(0.5)  # until all ranks are there
    alone = private()
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    with open(path, "a") as file:
        file.write(f"{{alone}} {{private()}}\\n")
    dist.barrier()
"""
_LOOP = """\
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=8, shuffle=True))
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
"""
_TRAINING = (
    """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(640, 4), torch.randint(2, (640,)))

def train():
    from {package} import Accelerator
"""
    + _LOOP
)
_WITHOUT_TORCH = (
    """
def train():
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from {package} import Accelerator
    data = TensorDataset(torch.randn(640, 4), torch.randint(2, (640,)))
"""
    + _LOOP
)
_TRAIN = "notebook_launcher(train, num_processes=2{port})"
_IMPORT = "import time\nbegan = time.perf_counter()\n{imports}\nimported = time.perf_counter()"
# The cells with which a notebook begins, by what they do. The last one needs no torch in the kernel itself.
FIRSTS = {
    "import and launch in one cell": [
        WORK + "\n{imports}\nnotebook_launcher(work, ('/dev/null',), num_processes=2{port})"
    ],
    "import, define, and train, a cell each": ["{imports}", _TRAINING, _TRAIN],
    "import, define, and train in one cell": [f"{_WITHOUT_TORCH}\n{_IMPORT}\n{_TRAIN}\nprint(imported - began)"],
}
# What the server that starts the ranks has for itself, in a kernel that has launched.
SERVER = """
from pathlib import Path

def private():
    import psutil
    def own(process):
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    return own(psutil.Process().parent())

print(notebook_launcher(private, num_processes=1)[0])
"""
# A notebook in use: torch has its threads. Accelerate forks the kernel, and its ranks would hang after this.
USED = "import torch\nx = torch.rand(2000, 2000)\n(x @ x).sum()"


@dataclass(frozen=True)
class Launch:
    """Seconds from the call until each of these."""

    first_line: float
    """The function has begun on every rank."""
    collective: float
    """Every rank has finished its first collective, or constructed its Accelerator."""
    finished: float
    """The front end has seen the cell end."""


class Launcher:
    """A kernel that launches with one of the two packages; replaced if it hangs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[str] = []
        self._open()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.__exit__()

    def launch(self, function: str = "work", ranks: int = 2) -> Launch | None:
        """Launches a function. `None` if it fails."""
        try:
            call, lines, finished = self._call(function, ranks)
        except CellError as error:
            self.failures.append(f"{ranks} ranks: {str(error)[:100]}")
            self._kernel.__exit__()
            self._open()
            return None
        return Launch(*(max(column) - call for column in zip(*lines, strict=True)), finished - call)

    def idle_memory(self) -> list[list[float]]:
        """Private bytes of each of 2 ranks: before they do anything, and after a collective."""
        return self._call("idle", 2)[1]

    def _call(self, function: str, ranks: int) -> tuple[float, list[list[float]], float]:
        """Returns when the call began, what the ranks wrote, and when the cell had ended."""
        with tempfile.TemporaryDirectory() as folder:
            marks = Path(folder, "marks")
            marks.touch()
            message = self._kernel.begin(
                "began = time.perf_counter()\n"
                f"notebook_launcher({function}, ({str(marks)!r},), num_processes={ranks}{port_argument(self.name)})\n"
                "print(began)"
            )
            printed = self._kernel.finish(message)
            finished = time.perf_counter()  # one clock for all processes
            lines = [[float(number) for number in line.split()] for line in marks.read_text().splitlines()]
        if len(lines) != ranks:
            raise CellError(f"{len(lines)} of {ranks} ranks have run")
        return float(printed.split()[-1]), lines, finished

    def _open(self) -> None:
        self._kernel = Kernel(TIMEOUT)
        self._kernel.run(WORK.format(package=PACKAGES[self.name]))
        self._kernel.run(IMPORTS[self.name])
        if self.name == "notebook-accel":
            self._kernel.run(USED)
        for function in ("work", "construct"):
            self._call(function, 2)
            time.sleep(SETTLE)

    def empty_cell(self) -> float:
        """Seconds that a cell without a launch takes."""
        began = time.perf_counter()
        self._kernel.run("pass")
        return time.perf_counter() - began


def in_turn(launchers: Sequence[Launcher], rounds: int, ranks: int = 2, function: str = "work") -> list[list[Launch]]:
    """Launches of each launcher, one after the other in every round; a round in which one fails is left out."""
    complete = []
    for _ in range(rounds):
        made = []
        for launcher in launchers:
            made.append(launcher.launch(function, ranks))
            time.sleep(SETTLE if ranks < _MANY else _SETTLE_MANY)
        if None not in made:
            complete.append(made)
    return [list(launches) for launches in zip(*complete, strict=True)] or [[] for _ in launchers]


def spread(launches: Sequence[Launch], field: str = "finished") -> Spread:
    return Spread([getattr(launch, field) for launch in launches])


def measure_warm(launchers: Sequence[Launcher], rounds: int) -> None:
    plain = _measure_warm(launchers, rounds, "work", "first collective done on both", 0.3)
    goal("function begun on both ranks", 1e3 * spread(plain[0], "first_line").median, 25, " ms")
    constructed = _measure_warm(launchers, rounds, "construct", "Accelerator constructed on both", 0.2)
    group, whole = (Spread([each.collective - each.first_line for each in found[0]]) for found in (plain, constructed))
    goal("Accelerator(), beyond a group and a collective", 1e3 * (whole.median - group.median), 5, " ms")
    (done,) = in_turn(launchers[:1], rounds, 2, "nothing")
    empty = Spread([launchers[0].empty_cell() for _ in range(rounds)])
    beyond = spread(done).median - empty.median
    goal("a launch of nothing, beyond an empty cell", 1e3 * beyond, 25, " ms")


def _measure_warm(
    launchers: Sequence[Launcher], rounds: int, function: str, middle: str, limit: float
) -> tuple[list[Launch], list[Launch]]:
    """Prints the table of one function; returns the launches of both packages."""
    ours, peer = in_turn(launchers, rounds, 2, function)
    fields = {"first_line": "function begun on both ranks", "collective": middle, "finished": "cell finished"}
    rows = {what: (spread(ours, field), spread(peer, field)) for field, what in fields.items()}
    versus(f"Warm launch of 2 ranks, {len(ours)} rounds: {middle.removesuffix(' on both')}, ms", SIDES, rows)
    what = "" if function == "work" else " with Accelerator()"
    ratio = spread(ours).over(spread(peer)).median
    goal(f"cell finished{what}, notebook-accel / Accelerate", ratio, limit)
    return ours, peer


def measure_first(kernels: int) -> None:
    """First launches, each in a kernel of its own; the last way also in kernels that find a base server."""
    ours, peer = SIDES
    times: dict[str, dict[str, list[float]]] = {what: {name: [] for name in SIDES} for what in FIRSTS}
    (*_, last) = FIRSTS
    restarted, imports, memory, settled, warm = [], [], [], [], []
    for _ in range(kernels):
        for what, by_name in times.items():
            for name, found in by_name.items():
                found.append(_first(name, what)[0])
        with with_base_server():
            _first(ours, last)  # as before a restart
            seconds, importing, private = _first(ours, last, SERVER)
        restarted.append(seconds)
        imports.append(float(importing.split()[-1]))
        memory.append(float(private.split()[-1]))
        with Kernel(TIMEOUT) as kernel:
            at_first, *later = _after_a_while(kernel)
        settled.append(at_first)
        warm.append(Spread(later).median)
    rows = {what: (Spread(found[ours]), Spread(found[peer])) for what, found in times.items()}
    rows["import, define, and train with a base server"] = (Spread(restarted), rows[last][1])
    versus(f"First launch of 2 ranks, {kernels} kernels each: cell finished, ms", SIDES, rows)
    idle = (Spread(settled), Spread(warm))
    rows_of_idle = {"5 s after the import, and 5 s after another launch": idle}
    versus("A launch of 2 ranks in a kernel that was idle: cell finished, ms", ("first", "later"), rows_of_idle)
    for what, most in zip(rows, (1, 1, 1, 0.15), strict=True):
        mine, theirs = rows[what]
        goal(f"{what}, notebook-accel / Accelerate", mine.over(theirs).median, most)
    goal("the import with a base server", 1e3 * Spread(imports).median, 60, " ms")
    goal("memory of a further notebook's server", Spread(memory).median / 1e6, 12, " MB")
    first, later = idle
    goal("first launch, 5 s after the import / later ones, 5 s after another", first.over(later).median, 1.1)


def _first(name: str, what: str, after: str = "pass") -> tuple[float, str, str]:
    """Seconds that the first cells of a new kernel take; what the last of them prints, and a cell after them."""
    with Kernel(TIMEOUT) as kernel:
        kernel.run("pass")
        values = {"package": PACKAGES[name], "imports": IMPORTS[name], "port": port_argument(name)}
        cells = [cell.format(**values) for cell in FIRSTS[what]]
        began = time.perf_counter()
        printed = [kernel.run(cell) for cell in cells][-1]
        seconds = time.perf_counter() - began
        return seconds, printed, kernel.run(after)


def _after_a_while(kernel: Kernel) -> list[float]:
    """The times of the first launches of a kernel that has imported the package 5 s before the first one.

    The others come 5 s after one another. A kernel that has been idle for so long takes some 40 ms for an empty cell,
    with this package or without, and one that has just run another cell takes 5.
    """
    kernel.run(f"{WORK.format(package='notebook_accel')}\n{IMPORTS['notebook-accel']}")
    times = []
    for _ in range(4):
        time.sleep(IDLE)
        with tempfile.NamedTemporaryFile() as marks:
            began = time.perf_counter()
            kernel.run(f"notebook_launcher(work, ({marks.name!r},), num_processes=2)")
            times.append(time.perf_counter() - began)
    return times


def measure_ranks(launchers: Sequence[Launcher], counts: Sequence[int], rounds: int) -> None:
    times = {ranks: tuple(map(spread, in_turn(launchers, rounds, ranks))) for ranks in counts}
    rows = []
    for fewer, ranks in zip([None, *counts], counts, strict=False):
        growth = ["-", "-"]
        if fewer:
            pairs = zip(times[fewer], times[ranks], strict=True)
            growth = [f"{1e3 * (more.median - less.median) / (ranks - fewer):.0f}" for less, more in pairs]
        ours, peer = times[ranks]
        rows.append([str(ranks), ours.text(), peer.text(), ours.over(peer).ratio(), *growth])
    head = ["ranks", *SIDES, "ratio", *(f"{side}: ms per further rank" for side in SIDES)]
    table(f"Cell finished, by number of ranks, {rounds} rounds, ms", head, rows)
    for ranks, (ours, peer) in times.items():
        if ranks >= _MANY:
            goal(f"cell finished on {ranks} ranks, notebook-accel / Accelerate", ours.over(peer).median, 0.5)


def measure_stalls(ours: Launcher, rounds: int) -> None:
    (launches,) = in_turn([ours], rounds, 16)
    times = spread(launches)
    print(f"\n16 ranks {rounds} times, notebook-accel: {times.text()} ms")
    goal("slowest above the median", 1e3 * (max(times.values, default=float("nan")) - times.median), 1e3 * STALL, " ms")


def measure_memory(launchers: Sequence[Launcher]) -> None:
    ours, peer = ([Spread(column) for column in zip(*each.idle_memory(), strict=True)] for each in launchers)
    rows = {"idle": (ours[0], peer[0]), "after a collective": (ours[1], peer[1])}
    versus("Private memory of a rank, MB", SIDES, rows, 1e6, 1)
    goal("idle, notebook-accel", ours[0].median / 1e6, 40, " MB")


def measure(*, quick: bool) -> None:
    measure_first(1 if quick else 5)
    with Launcher("notebook-accel") as ours, Launcher("Accelerate") as peer:
        measure_warm([ours, peer], 5 if quick else 20)
        measure_memory([ours, peer])
        measure_ranks([ours, peer], [2, 4, 8] if quick else [2, 4, 8, 16, 32], 2 if quick else 7)
        measure_stalls(ours, 2 if quick else 20)
        for launcher in (ours, peer):
            for failure in launcher.failures:
                print(f"  failed, {launcher.name}, {failure}")
