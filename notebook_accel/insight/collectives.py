"""The last collectives of each rank as a table, as `job.collectives()` returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebook_accel.events import Collective, CollectivesRecorded
from notebook_accel.insight.frames import dataframe
from notebook_accel.launch.job import collectives, requests
from notebook_accel.launch.job.requests import JobHandle

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("rank", "group", "number", "operation", "shapes", "bytes", "began", "seconds", "done")
Row = dict[str, Any]
_CAUSE = "its ranks can't be asked for their collectives: call job.collectives()"


def table(job: JobHandle, rank: int | None) -> DataFrame | list[Row]:
    """Implements `Job.collectives`."""
    found = requests.replies(job, collectives.request().event, 0.0, rank, _CAUSE)
    replies = {each: event for each, event in found.by_rank.items() if isinstance(event, CollectivesRecorded)}
    if not replies:
        raise TimeoutError(
            f"no rank of {job.title} has reported its collectives: C code may hold the GIL. Try again, or look at "
            "job.stacks()"
        )
    if all(event.error for event in replies.values()):
        raise TimeoutError(next(event.error for event in replies.values()))
    rows = [_row(each, entry, event.at - job.started) for each, event in replies.items() for entry in event.entries]
    return dataframe(rows, COLUMNS)


def _row(rank: int, entry: Collective, reported: float) -> Row:
    group = entry.group_label if entry.group_label == collectives.DEFAULT_GROUP else entry.group
    values = (
        rank,
        group,
        entry.number,
        entry.operation,
        entry.shapes,
        entry.size,
        reported - entry.seconds_ago,
        entry.seconds,
        entry.done,
    )
    return dict(zip(COLUMNS, values, strict=True))
