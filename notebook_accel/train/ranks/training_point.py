"""How far the training is, counted the same on all ranks: two ranks can tell whether they are at one point of it."""

from __future__ import annotations

from notebook_accel import rank_local


class TrainingPoint:
    """The number of steps that prepared optimizers have made on this rank, which is never reset."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


def of_this_rank() -> TrainingPoint:
    """The count of this rank."""
    found: TrainingPoint = rank_local.space().setdefault(__name__, TrainingPoint())
    return found
