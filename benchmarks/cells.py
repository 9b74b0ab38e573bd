"""The latency of a cell on every rank, `%%accelerate`, beside ipyparallel's `%%px`, in turn in one kernel.

Also beside the same cell while `%accelerate cells on` makes every cell run on the ranks.
"""

from __future__ import annotations

from functools import partial

from common import Kernel, Spread, goal, in_turn, versus

_GOAL = {2: 0.35, 8: 0.5}
"""Of `%%px`'s latency, by the number of ranks."""
_BEYOND = {2: 10, 16: 60}
"""Milliseconds beyond an empty cell, by the number of ranks."""
_START = """
import ipyparallel
cluster = ipyparallel.Cluster(n={count}, log_level=40)
engines = cluster.start_and_connect_sync(activate=True)
"""
_CODE = ("pass", "6 * 7")


def measure(*, quick: bool) -> None:
    rounds = 10 if quick else 50
    for count in _GOAL:
        compare(count, rounds)
    with Kernel() as kernel:
        kernel.run("%%accelerate -n 16\npass")
        found = in_turn({cell: partial(kernel.run, cell) for cell in ("pass", "%%accelerate\npass")}, rounds)
    beyond(16, *found.values())


def compare(count: int, rounds: int) -> None:
    """Measures both, and prints what it finds."""
    with Kernel() as kernel:
        kernel.run(f"import notebook_accel\n{_START.format(count=count)}")
        kernel.run(f"%%accelerate -n {count}\npass")
        here, peer = ([f"{magic}\n{code}" for code in _CODE] for magic in ("%%accelerate", "%%px"))
        found = in_turn({cell: partial(kernel.run, cell) for cell in ("pass", *here, *peer)}, rounds)
        kernel.run("%accelerate cells on")
        every = in_turn({cell: partial(kernel.run, cell) for cell in (*_CODE, *here)}, rounds)
        kernel.run("%accelerate cells off")
        kernel.run("cluster.stop_cluster_sync()")
    rows = {code: (found[mine], found[theirs]) for code, mine, theirs in zip(_CODE, here, peer, strict=True)}
    versus(f"One cell on {count} ranks, ms", ("here", "%%px"), rows)
    switched = {code: (every[code], every[mine]) for code, mine in zip(_CODE, here, strict=True)}
    versus(f"One cell on {count} ranks while every cell runs on them, ms", ("every cell", "%%accelerate"), switched)
    print()
    ours, px = rows["pass"]
    goal(f"a cell on {count} ranks, of %%px's latency", ours.over(px).median, _GOAL[count])
    value, plain = switched["6 * 7"]
    goal(f"every cell on {count} ranks, of a cell with %%accelerate", value.over(plain).median, 1.2)
    if count in _BEYOND:
        beyond(count, found["pass"], ours)


def beyond(count: int, empty: Spread, cell: Spread) -> None:
    """Prints what a cell takes beyond an empty one."""
    milliseconds = 1e3 * (cell.median - empty.median)
    goal(f"an empty cell on {count} ranks, beyond an empty cell", milliseconds, _BEYOND[count], " ms")
