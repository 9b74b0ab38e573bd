"""Compare `map_on_ranks` with a hand-written loop over persistent ranks, and with other ways to spread items, in turn.

The others are ipyparallel's load-balanced view, and `split_between_processes` in a launch. Each brings all values back
to the kernel. Half of the items take as long as all others together where they are `uneven`. By itself, the view sends
a message for each item, which takes milliseconds: it gets a part of the items, and its ratio is of the time per item.
"""

from __future__ import annotations

from collections.abc import Callable

from common import Kernel, Spread, goal, in_turn, table

_RANKS = 2
_GOAL = 1.03
"""Of the time of the hand-written loop, for items that take equally long."""
_START = """
import time
import ipyparallel
from notebook_accel import map_on_ranks, notebook_launcher, Accelerator
cluster = ipyparallel.Cluster(n={count}, log_level=40)
engines = cluster.start_and_connect_sync(activate=True)
view = engines.load_balanced_view()

def work(seconds):
    import time
    end = time.perf_counter() + seconds
    if seconds >= 0.0005:
        time.sleep(seconds)
    else:
        while time.perf_counter() < end:
            pass
    return seconds

def split():
    accelerator = Accelerator(cpu=True)
    with accelerator.split_between_processes(items) as mine:
        return [work(each) for each in mine]
"""
_LOOP = """%%accelerate
import os
found = [work(each) for each in items[int(os.environ["RANK"]) :: {count}]]
"""
_PART = "load-balanced view, {part}"
_CONTENDERS = {
    "map_on_ranks": ["values = map_on_ranks(work, items, num_processes={count}, device='cpu')"],
    "the loop": [_LOOP, "%accelerate pull found --ranks all"],
    _PART: ["values = view.map_sync(work, items[::{step}])"],
    "load-balanced view, in chunks of 50": ["values = view.map_sync(work, items, chunksize=50)"],
    "split_between_processes": ["values = sum(notebook_launcher(split, num_processes={count}, device='cpu'), [])"],
}
"""The cells of each."""
_ITEMS = {
    "10,000 items of 1 ms": ("[0.001] * 10_000", 20),
    "100,000 items of 20 µs": ("[0.00002] * 100_000", 500),
    "uneven: 1,000 of 1 ms, then 5 of 200 ms": ("[0.001] * 1000 + [0.2] * 5", 5),
}
"""By title: the items, and of how many the view gets one where it sends a message for each."""
_EVEN = "10,000 items of 1 ms"


def measure(*, quick: bool) -> None:
    with Kernel() as kernel:
        kernel.run(_START.format(count=_RANKS))
        kernel.run("%accelerate --device cpu")
        kernel.run(f"%%accelerate -n {_RANKS}\npass")
        for title, (items, step) in _ITEMS.items():
            kernel.run(f"items = ({items}){'[::10]' if quick else ''}")
            found = in_turn({name: contender(kernel, name, step) for name in _CONTENDERS}, 1 if quick else 3)
            loop = found["the loop"]
            rows = []
            for name, each in found.items():
                share = step if name == _PART else 1
                ratio = Spread([share * value for value in each.over(loop).values])
                rows.append([name.format(part=f"1/{step} of them"), each.text(1, 2), ratio.ratio()])
            table(f"{title} on {_RANKS} ranks, s", ["", "time", "of the loop's, per item"], rows)
            if title == _EVEN:
                print()
                goal("map_on_ranks, of the time of the loop", found["map_on_ranks"].over(loop).median, _GOAL)
        kernel.run("cluster.stop_cluster_sync()")


def contender(kernel: Kernel, name: str, step: int) -> Callable[[], None]:
    """What runs its cells."""

    def run() -> None:
        for cell in _CONTENDERS[name]:
            kernel.run(cell.format(count=_RANKS, step=step))

    return run
