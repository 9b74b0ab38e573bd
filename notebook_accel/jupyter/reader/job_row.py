"""One job as the browser gets it."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Iterable, Iterator

from notebook_accel.errors import JobLostError, NotebookAccelError, StreamError
from notebook_accel.jupyter.model import JobRow, Metric, Point
from notebook_accel.launch.job import location, progress
from notebook_accel.launch.job.headline import headline
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.launch.job.text import date, shortened, value
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.pages import Output
from notebook_accel.launch.journal.records import Record
from notebook_accel.panel.panel_charts import extent
from notebook_accel.rank_spans import named

POINTS = 60
"""The most points of a sparkline."""
_TEXT_LIMIT = 300
_CODE = 'from notebook_accel import attach\n\njob = attach("{id}")'


def row(job: Job, metric: Drawing | None = None, output: Output | None = None) -> JobRow:
    """The row of a job.

    Args:
        job: The job.
        metric: Its main metric; `None` if nothing was reported, or if that isn't known.
        output: The first output that has shown it; `None` if no notebook has.
    """
    found, used = progress.overview(job), job.energy
    details = (date(job.started), job.hardware, "" if used is None else used.brief)
    return {
        "id": job.id,
        "title": shortened(job.title, _TEXT_LIMIT),
        "notes": job.notes,
        "pinned": False,
        "status": job.status.value,
        "state": progress.status(job),
        "live": not job.status.ended,
        "seconds": job.seconds,
        "done": -1 if found.done is None else math.floor(1000 * found.done + 1e-6),
        "summary": _summary(job, found),
        "details": " · ".join(part for part in details if part),
        "note": shortened(_note(job), _TEXT_LIMIT),
        "stopping": job.stopping,
        "metrics": [] if metric is None else [_metric(metric)],
        "devices": {} if job.status.ended else _devices(job),
        "code": _CODE.format(id=job.id),
        "checkpoints": job.launched.checkpoint_dir,
        "resumable": job.resumable,
        "notebook": "" if output is None else output.notebook,
        "cell": "" if output is None else output.cell,
        "part": bool(job.launched.part_of),
    }


def unreadable(record: Record, reason: str) -> JobRow:
    """The row of a job whose journal can't be read."""
    live = record.may_run()
    return {
        "id": record.id,
        "title": record.id,
        "notes": "",
        "pinned": False,
        "status": (Status.RUNNING if live else Status.LOST).value,
        "state": "running" if live else "ended",
        "live": live,
        "seconds": 0.0,
        "done": -1,
        "summary": "",
        "details": date(int(record.path.name.partition("-")[0], 16) / 1000),
        "note": shortened(f"This job can't be read: {reason}", _TEXT_LIMIT),
        "stopping": 0,
        "metrics": [],
        "devices": {},
        "code": "",
        "checkpoints": "",
        "resumable": False,
        "notebook": "",
        "cell": "",
        "part": False,
    }


def marked(row: JobRow, marks: Marks) -> JobRow:
    """The row as its user has marked the job."""
    notes = row["notes"] if marks.notes is None else marks.notes
    return {**row, "title": marks.title or row["title"], "notes": notes, "pinned": marks.pinned}


@contextlib.contextmanager
def telling_damage(*, in_log: bool = True) -> Iterator[None]:
    """Makes an error that no reader expects say that a job can't be read: a damaged journal may hold anything.

    Args:
        in_log: Whether the log of the Jupyter server gets its traceback.

    Raises:
        JobLostError: There was such an error.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, NotebookAccelError) and not isinstance(error, StreamError):
            raise
        if in_log:
            traceback.print_exc()
        text = f"its journal is damaged, or written by another version: {type(error).__name__}: {error}"
        raise JobLostError(text) from error


def without_superseded(rows: Iterable[JobRow]) -> list[JobRow]:
    """The rows, of which those can't be resumed whose checkpoints a later job uses or has finished with.

    Args:
        rows: The newest first.
    """
    found, taken = [], set()
    for each in rows:
        is_superseded = each["checkpoints"] in taken
        found.append({**each, "resumable": False} if is_superseded else each)
        if each["checkpoints"] and (each["live"] or each["status"] == Status.DONE.value):
            taken.add(each["checkpoints"])
    return found


def _summary(job: Job, found: progress.Overview) -> str:
    words = headline(job, found)
    if job.status.ended:
        return f"{words.ranks} · {words.seconds}"
    waits = "" if words.status in ("starting", "running") else words.status
    parts = (words.ranks, waits, words.done, words.left or f"{words.seconds} elapsed")
    return " · ".join(part for part in parts if part)


def _note(job: Job) -> str:
    """What the user should know: the first failure, why the job is stalled, or what it waits for."""
    failed = progress.failed(job)
    if failed:
        return f"rank {failed[0].rank}: {progress.why_failed(failed[0])}"
    if job.status is Status.FAILED and job.outcome is not None:
        return next(iter(job.outcome.error.splitlines()), "")
    if job.awaits and not job.status.ended:
        return f"waiting {job.awaits}"
    return location.explain(job)


def _devices(job: Job) -> dict[str, str]:
    """Which ranks use which device; they use the devices in turn. A job that waits uses none."""
    ranks: dict[str, list[int]] = {}
    for index, state in enumerate(job.ranks):
        if job.devices and not state.phase.ended and not job.awaits:
            ranks.setdefault(job.devices[index % len(job.devices)], []).append(state.rank)
    title = shortened(job.title, _TEXT_LIMIT)
    return {device: f"{title}: {named(there)}" for device, there in ranks.items()}


def _metric(drawing: Drawing) -> Metric:
    points = [point for segment in drawing.segments for point in segment]
    left, width = extent(point.x for point in points)
    bottom, height = extent(point.mean for point in points)

    def place(x: float, y: float) -> Point:
        return round(1000 * (x - left) / width), round(1000 * (y - bottom) / height)

    lines = [[place(point.x, point.mean) for point in segment] for segment in drawing.segments]
    last = next((point.mean for point in reversed(points)), None)
    return {
        "name": shortened(drawing.name, _TEXT_LIMIT),
        "value": "" if last is None else value(last),
        "lines": lines,
    }
