"""A job as a table that needs no script, drawn in place below the cell; what is drawn last stays in the notebook."""

from __future__ import annotations

from notebook_accel.launch.job.describe import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import html_page
from notebook_accel.notebook.views.updating_output import Bundle, Display

_INTERVAL = 0.33


class HtmlView(Display):
    """Draws into one output above what the ranks write, and updates it three times a second."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, draw, _INTERVAL)


def draw(job: Job, *, fallback: bool = False) -> Bundle:
    """The output for a job as it is now: as HTML, and for where that is not shown as text; see `page.draw`."""
    # Drawing metrics twice would take as long as all the rest, and while a job runs hardly anyone sees the text.
    return {"text/html": html_page.draw(job, fallback=fallback), "text/plain": describe(job, metrics=job.status.ended)}
