"""The anatomy of a job's training steps as a table: a row a rank, what each part of a step takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from notebook_accel.events import StepTimes
from notebook_accel.insight.frames import dataframe

if TYPE_CHECKING:
    from pandas import DataFrame

PARTS = ("data", "copy", "forward", "backward", "sync", "optimizer", "rest")
"""The parts of a step, in the order of the columns."""

Row = dict[str, float | int | None]


def table(measured: Iterable[tuple[int, StepTimes | None]]) -> DataFrame | list[Row]:
    """The rows as a DataFrame if pandas is installed, otherwise as they are."""
    return dataframe(rows(measured), columns())


def rows(measured: Iterable[tuple[int, StepTimes | None]]) -> list[Row]:
    """A row for each rank that has reported the times of its steps.

    Args:
        measured: Ranks, and what they have reported last.
    """
    return [_row(rank, times) for rank, times in measured if times is not None and times.measured]


def columns() -> list[str]:
    """The names of the columns."""
    shares = [f"{part}_share" for part in PARTS]
    return ["rank", "steps", "seconds", *PARTS, *shares, "samples_per_second"]


def _row(rank: int, times: StepTimes) -> Row:
    whole = sum(times.seconds.values())
    row: Row = {"rank": rank, "steps": times.steps, "seconds": whole / times.measured}
    row |= {part: times.seconds.get(part, 0.0) / times.measured for part in PARTS}
    row |= {f"{part}_share": times.seconds.get(part, 0.0) / whole if whole else 0.0 for part in PARTS}
    row["samples_per_second"] = times.samples / whole if times.samples and whole else None
    return row
