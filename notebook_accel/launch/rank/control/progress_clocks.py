"""Leaves a pause out of the times that progress bars and the anatomy of a training step measure."""

from __future__ import annotations

from notebook_accel import events
from notebook_accel.launch.rank.patches import rich, tqdm


def skip(seconds: float) -> None:
    """Has the clocks of this rank continue as if the last seconds had not passed. Called on the thread that trains."""
    clock = events.step_clock()
    if clock is not None:
        clock.skip()
    tqdm.skip(seconds)
    rich.skip(seconds)
