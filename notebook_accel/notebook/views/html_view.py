"""The view `html`: a table without scripts, redrawn in place; the last one stays in the notebook."""

from __future__ import annotations

from notebook_accel.launch.job.describe import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import html_page
from notebook_accel.notebook.views.updating_output import Bundle, Display

_INTERVAL = 0.33


class HtmlView(Display):
    """Draws into one output above the ranks' output, and updates it three times a second."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, draw, _INTERVAL)


def draw(job: Job, *, fallback: bool = False) -> Bundle:
    """The current output for a job as HTML, and as text for front ends that show no HTML; see `html_page.draw`."""
    # Drawing metrics twice would double the cost, and hardly anyone sees the text while a job runs.
    return {"text/html": html_page.draw(job, fallback=fallback), "text/plain": describe(job, metrics=job.status.ended)}
