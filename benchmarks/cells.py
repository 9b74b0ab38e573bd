"""Compare the latency of a cell on every rank, `%%accelerate`, with ipyparallel's `%%px`, in turn in one kernel.

Also compares it with the same cell while `%accelerate cells on` makes every cell run on the ranks.
"""

from __future__ import annotations

import argparse
import time

from common import Kernel, Spread, goal, table, warn_if_busy

_GOAL = {2: 0.35, 8: 0.5}
"""Of `%%px`'s latency, by the number of ranks."""
_EVERY_CELL_GOAL = 1.2
_BEYOND = {2: 10, 16: 60}
"""Milliseconds beyond an empty cell, by the number of ranks."""
_START = """
import ipyparallel
cluster = ipyparallel.Cluster(n={count}, log_level=40)
engines = cluster.start_and_connect_sync(activate=True)
"""
_CELLS = {
    "empty": "pass",
    "here": "%%accelerate\npass",
    "%%px": "%%px\npass",
    "value, here": "%%accelerate\n6 * 7",
    "value, %%px": "%%px\n6 * 7",
}
_EVERY_CELL = {"every cell": "pass", "value, every cell": "6 * 7"}
"""The same while every cell runs on the ranks."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments = parser.parse_args()
    warn_if_busy()
    rounds = 10 if arguments.quick else 50
    for count in (2, 8):
        compare(count, rounds)
    found = measure(16, rounds, {name: _CELLS[name] for name in ("empty", "here")})
    beyond(16, found)


def compare(count: int, rounds: int) -> None:
    """Measures both, and prints what it finds."""
    found = measure(count, rounds, _CELLS, _START.format(count=count), _EVERY_CELL)
    ratio = found["here"].over(found["%%px"])
    value = found["value, here"].over(found["value, %%px"])
    table(
        f"One cell on {count} ranks, ms",
        ["", "here", "%%px", "ratio"],
        [
            ["pass", found["here"].text(1e-3), found["%%px"].text(1e-3), ratio.ratio()],
            ["6 * 7", found["value, here"].text(1e-3), found["value, %%px"].text(1e-3), value.ratio()],
        ],
    )
    every = found["every cell"].over(found["here"])
    every_value = found["value, every cell"].over(found["value, here"])
    table(
        f"One cell on {count} ranks while every cell runs on them, ms",
        ["", "every cell", "%%accelerate", "ratio"],
        [
            ["pass", found["every cell"].text(1e-3), found["here"].text(1e-3), every.ratio()],
            ["6 * 7", found["value, every cell"].text(1e-3), found["value, here"].text(1e-3), every_value.ratio()],
        ],
    )
    print()
    goal(f"a cell on {count} ranks, of %%px's latency", ratio.median, _GOAL[count])
    goal(f"every cell on {count} ranks, of a cell with %%accelerate", every_value.median, _EVERY_CELL_GOAL)
    if count in _BEYOND:
        beyond(count, found)


def beyond(count: int, found: dict[str, Spread]) -> None:
    """Prints what a cell takes beyond an empty one."""
    milliseconds = (found["here"].median - found["empty"].median) * 1e3
    goal(f"an empty cell on {count} ranks, beyond an empty cell", milliseconds, _BEYOND[count], " ms")


def measure(
    count: int, rounds: int, cells: dict[str, str], start: str = "", every_cell: dict[str, str] | None = None
) -> dict[str, Spread]:
    """Runs each cell in each round, one after the other; returns the seconds that they took.

    Then runs the cells of `every_cell`, while every cell runs on the ranks.
    """
    every_cell = every_cell or {}
    seconds: dict[str, list[float]] = {name: [] for name in (*cells, *every_cell)}
    with Kernel(timeout=300) as kernel:
        kernel.run(f"import notebook_accel\n{start}")
        kernel.run(f"%%accelerate -n {count}\npass")
        for number in range(rounds + 3):
            for group in (cells, every_cell):
                if group is every_cell and every_cell:
                    kernel.run("%accelerate cells on")
                for name, code in group.items():
                    began = time.perf_counter()
                    kernel.run(code)
                    if number >= 3:  # the first ones warm up
                        seconds[name].append(time.perf_counter() - began)
            if every_cell:
                kernel.run("%accelerate cells off")
        if start:
            kernel.run("cluster.stop_cluster_sync()")
    return {name: Spread(values) for name, values in seconds.items()}


if __name__ == "__main__":
    main()
