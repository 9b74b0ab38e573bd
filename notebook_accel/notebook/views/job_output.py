"""Shows a job as an output that names it: the page draws the panel, of what the Jupyter server reads on disk.

The page asks for what it shows, so it needs nothing of the kernel: not when it is loaded again, not while the kernel is
busy, and not once the kernel is gone. `extension/lab/src/jobOutput.ts` draws the output.
"""

from __future__ import annotations

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import records
from notebook_accel.notebook.views.static_views import HTML_INTERVAL, Bundle, RedrawnView
from notebook_accel.panel import html_page
from notebook_accel.panel.panel_state import StateMaker

MIME = "application/vnd.notebook-accel.job+json"
_INTERVAL = 20.0
"""Seconds between two drawings of the HTML beside it, which a notebook has that is saved in between."""


class JobOutput(RedrawnView):
    """Names the job, with HTML and text in the same output for front ends that do not draw jobs."""

    is_seen = False
    """The page looks at the job's records, and its server says so there."""

    def __init__(self, job: Job) -> None:
        if not records.are_of(job.id):
            job.runner.record()  # at once: the page asks for it as soon as it has the output
        if records.are_of(job.id):
            super().__init__(job, draw, _INTERVAL)
        else:  # it can't be, and the page would ask for it in vain
            super().__init__(job, html_page.bundle, HTML_INTERVAL)


def draw(job: Job) -> Bundle:
    """The current output for a job. Until the end, it has the state that the page begins with."""
    if job.status.ended:
        return {MIME: {"job": job.id}, **html_page.bundle(job)}
    return {MIME: {"job": job.id, "state": StateMaker(job).whole()}, **html_page.bundle(job, fallback=True)}
