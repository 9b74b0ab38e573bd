"""How long a launch takes, compared with Accelerate's `notebook_launcher`: warm, first, and with many ranks."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import (
    IMPORTS,
    PACKAGES,
    CellError,
    Kernel,
    Spread,
    goal,
    port_argument,
    table,
    warn_if_busy,
    with_base_server,
)

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
# A notebook that is run from top to bottom: its last cell launches this.
TRAINING = (
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
# The first cell of a kernel. It needs no torch in the kernel itself.
FIRST = (
    """
def train():
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from {package} import Accelerator
    data = TensorDataset(torch.randn(640, 4), torch.randint(2, (640,)))
"""
    + _LOOP
    + """
import time
began = time.perf_counter()
{imports}
imported = time.perf_counter()
notebook_launcher(train, num_processes=2{port})
print(imported - began)
"""
)
# What the server that starts the ranks has for itself, in a kernel that has launched.
SERVER = """
from pathlib import Path
from notebook_accel.launch import engines

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

    def __init__(self, name: str, *, warm: bool = True, python: str = sys.executable) -> None:
        self.name = name
        self._python = python
        self.failures: list[str] = []
        self._warm = warm
        self._open()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.__exit__()

    def launch(self, function: str = "work", ranks: int = 2, *, first: bool = False) -> Launch | None:
        """Launches a function; with `first`, the import is part of what is timed. `None` if it fails."""
        try:
            call, lines, finished = self._call(function, ranks, IMPORTS[self.name] if first else "")
        except CellError as error:
            self.failures.append(f"{ranks} ranks: {str(error)[:100]}")
            self._kernel.__exit__()
            self._open()
            return None
        return Launch(*(max(column) - call for column in zip(*lines, strict=True)), finished - call)

    def idle_memory(self) -> list[list[float]]:
        """Private bytes of each of 2 ranks: before they do anything, and after a collective."""
        return self._call("idle", 2)[1]

    def _call(self, function: str, ranks: int, before: str = "pass") -> tuple[float, list[list[float]], float]:
        """Returns when the call began, what the ranks wrote, and when the cell had ended."""
        with tempfile.TemporaryDirectory() as folder:
            marks = Path(folder, "marks")
            marks.touch()
            message = self._kernel.begin(
                f"began = time.perf_counter()\n{before}\n"
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
        self._kernel = Kernel(TIMEOUT, self._python)
        self._kernel.run(WORK.format(package=PACKAGES[self.name]))
        if self._warm:
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
    rows = []
    for field, what in fields.items():
        a, b = spread(ours, field), spread(peer, field)
        rows.append([what, a.text(), b.text(), a.over(b).ratio()])
    head = ["since the call, ms: median (least-most)", "notebook-accel", "Accelerate", "notebook-accel / Accelerate"]
    table(f"Warm launch of 2 ranks, {len(ours)} rounds: {middle.removesuffix(' on both')}", head, rows)
    what = "" if function == "work" else " with Accelerator()"
    ratio = spread(ours).over(spread(peer)).median
    goal(f"cell finished{what}, notebook-accel / Accelerate", ratio, limit)
    return ours, peer


def measure_first(kernels: int) -> None:
    """First launches, each in a kernel of its own."""
    cold: dict[str, list[Launch]] = {"notebook-accel": [], "Accelerate": []}
    whole: dict[str, list[float]] = {name: [] for name in cold}
    settled, warm = [], []
    for _ in range(kernels):
        for name, launches in cold.items():
            with Launcher(name, warm=False) as launcher:
                launch = launcher.launch(first=True)
            if launch is not None:
                launches.append(launch)
            with Kernel(TIMEOUT) as kernel:
                whole[name].append(_run_all(kernel, name))
        with Kernel(TIMEOUT) as kernel:
            times = _after_a_while(kernel)
        settled.append(times[0])
        warm.append(Spread(times[1:]).median)
    ours, peer = spread(cold["notebook-accel"]), spread(cold["Accelerate"])
    first, later = Spread(settled), Spread(warm)
    training, peers = (Spread(whole[name]) for name in cold)
    rows = [
        [
            "import and launch in one cell: notebook-accel, Accelerate",
            ours.text(),
            peer.text(),
            ours.over(peer).ratio(),
        ],
        [
            "import, define, and train, a cell each: notebook-accel, Accelerate",
            training.text(),
            peers.text(),
            training.over(peers).ratio(),
        ],
        [
            "5 s after our import: first; 5 s after another: later ones",
            first.text(),
            later.text(),
            first.over(later).ratio(),
        ],
    ]
    table(f"First launch of 2 ranks, {kernels} kernels each", ["cell finished, ms", "A", "B", "A / B"], rows)
    goal("import and launch, notebook-accel / Accelerate", ours.over(peer).median, 1.0)
    goal("import, define, and train, notebook-accel / Accelerate", training.over(peers).median, 1.0)
    goal("first launch, 5 s after the import / later ones, 5 s after another", first.over(later).median, 1.1)


def measure_restarted(kernels: int) -> None:
    """The first cells of kernels that find a base server, as after a restart."""
    times: dict[str, list[float]] = {"notebook-accel": [], "Accelerate": []}
    alone, imports, memory = [], [], []
    for _ in range(kernels):
        alone.append(_first_cell("notebook-accel")[0])
        times["Accelerate"].append(_first_cell("Accelerate")[0])
        with with_base_server():
            _first_cell("notebook-accel")
            whole, importing, private = _first_cell("notebook-accel")
        times["notebook-accel"].append(whole)
        imports.append(importing)
        memory.append(private)
    ours, peer, without = Spread(times["notebook-accel"]), Spread(times["Accelerate"]), Spread(alone)
    rows = [
        ["with a base server: notebook-accel, Accelerate", ours.text(), peer.text(), ours.over(peer).ratio()],
        ["without: notebook-accel, Accelerate", without.text(), peer.text(), without.over(peer).ratio()],
    ]
    head = ["cell finished, ms", "A", "B", "A / B"]
    table(f"First cell of a kernel: import, and train on 2 ranks, {kernels} kernels each", head, rows)
    goal("first cell with a base server, notebook-accel / Accelerate", ours.over(peer).median, 0.15)
    goal("the import in it", 1e3 * Spread(imports).median, 60, " ms")
    goal("memory of a further notebook's server", Spread(memory).median / 1e6, 12, " MB")


def _first_cell(name: str) -> tuple[float, float, float]:
    """Seconds that the first cell of a new kernel takes, and its import; private bytes of the server."""
    with Kernel(TIMEOUT) as kernel:
        kernel.run("pass")
        cell = FIRST.format(package=PACKAGES[name], imports=IMPORTS[name], port=port_argument(name))
        began = time.perf_counter()
        printed = kernel.run(cell)
        whole = time.perf_counter() - began
        private = float(kernel.run(SERVER).split()[-1]) if name == "notebook-accel" else 0.0
    return whole, float(printed.split()[-1]), private


def _run_all(kernel: Kernel, name: str) -> float:
    """The time for the cells that import one of the packages, and define and launch a training run."""
    began = time.perf_counter()
    kernel.run(IMPORTS[name])
    kernel.run(TRAINING.format(package=PACKAGES[name]))
    kernel.run(f"notebook_launcher(train, num_processes=2{port_argument(name)})")
    return time.perf_counter() - began


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


def measure_ranks(launchers: Sequence[Launcher], counts: Sequence[int], rounds: int, picture: Path) -> None:
    times: dict[str, list[Spread]] = {launcher.name: [] for launcher in launchers}
    rows = []
    for index, ranks in enumerate(counts):
        ours, peer = map(spread, in_turn(launchers, rounds, ranks))
        for name, measured in (("notebook-accel", ours), ("Accelerate", peer)):
            times[name].append(measured)
        growth = ["-", "-"]
        if index:
            more = ranks - counts[index - 1]
            growth = [f"{1e3 * (found[-1].median - found[-2].median) / more:.0f}" for found in times.values()]
        rows.append([str(ranks), ours.text(), peer.text(), ours.over(peer).ratio(), *growth])
    head = [
        "ranks",
        "notebook-accel, ms",
        "Accelerate, ms",
        "notebook-accel / Accelerate",
        "notebook-accel: ms per further rank",
        "Accelerate: ms per further rank",
    ]
    table(f"Cell finished, by number of ranks, {rounds} rounds", head, rows)
    for ranks, ours, peer in zip(counts, times["notebook-accel"], times["Accelerate"], strict=True):
        if ranks >= _MANY:
            goal(f"cell finished on {ranks} ranks, notebook-accel / Accelerate", ours.over(peer).median, 0.5)
    for name, found in times.items():
        stalls = [1e3 * value for each in found for value in each.values if value > each.median + STALL]
        if stalls:
            print(f"  stalls, {name}: {', '.join(f'{value:.0f} ms' for value in stalls)}")
    draw(counts, times, picture)


def measure_stalls(ours: Launcher, rounds: int) -> None:
    (launches,) = in_turn([ours], rounds, 16)
    times = spread(launches)
    print(f"\n16 ranks {rounds} times, notebook-accel: {times.text()} ms")
    goal("slowest above the median", 1e3 * (max(times.values, default=float("nan")) - times.median), 1e3 * STALL, " ms")


def measure_memory(launchers: Sequence[Launcher]) -> None:
    found = {
        launcher.name: [Spread(column) for column in zip(*launcher.idle_memory(), strict=True)]
        for launcher in launchers
    }
    rows = [
        [what, *(measured[index].text(1e6, 1) for measured in found.values())]
        for index, what in enumerate(("idle", "after a collective"))
    ]
    table("Private memory of a rank, MB", ["", *found], rows)
    goal("idle, notebook-accel", found["notebook-accel"][0].median / 1e6, 40, " MB")


def draw(counts: Sequence[int], times: dict[str, list[Spread]], picture: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FormatStrFormatter, LogLocator

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for label, found in zip(("notebook_accel", "accelerate"), times.values(), strict=True):
        known = [(count, each) for count, each in zip(counts, found, strict=True) if each.values]
        ranks = [count for count, _ in known]
        (line,) = axes.plot(ranks, [each.median for _, each in known], "o-", label=label)
        low, high = [min(each.values) for _, each in known], [max(each.values) for _, each in known]
        axes.fill_between(ranks, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="s", title="From the call to the end of the cell")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(picture, dpi=150)
    print(f"  drawn in {picture}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and at most 8 ranks")
    parser.add_argument("--picture", type=Path, default=Path(__file__).with_suffix(".png"))
    quick = (arguments := parser.parse_args()).quick
    warn_if_busy()
    measure_first(1 if quick else 3)
    measure_restarted(1 if quick else 5)
    with Launcher("notebook-accel") as ours, Launcher("Accelerate") as peer:
        measure_warm([ours, peer], 5 if quick else 20)
        measure_memory([ours, peer])
        measure_ranks([ours, peer], [2, 4, 8] if quick else [2, 4, 8, 16, 32], 2 if quick else 7, arguments.picture)
        measure_stalls(ours, 2 if quick else 20)
        for launcher in (ours, peer):
            for failure in launcher.failures:
                print(f"  failed, {launcher.name}, {failure}")


if __name__ == "__main__":
    main()
