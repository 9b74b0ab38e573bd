"""A job as a few lines of text, drawn in place below the cell."""

from __future__ import annotations

from notebook_accel.launch.job.describe import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views.updating_output import Bundle, Display

_INTERVAL = 0.5


class TextView(Display):
    """Draws into one output above what the ranks write, and updates it."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, draw, _INTERVAL)


def draw(job: Job) -> Bundle:
    """The output for a job as it is now."""
    return {"text/plain": describe(job)}
