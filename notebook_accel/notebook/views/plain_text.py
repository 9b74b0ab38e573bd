"""The view `text`: a few lines of text, redrawn in place below the cell. Registered in `_VIEWS` in `__init__.py`."""

from __future__ import annotations

from notebook_accel.launch.job.describe import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views.updating_output import Bundle, Display

_INTERVAL = 0.5


class TextView(Display):
    """Draws into one output above the ranks' output, and updates it."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, draw, _INTERVAL)


def draw(job: Job) -> Bundle:
    """The current output for a job."""
    return {"text/plain": describe(job)}
