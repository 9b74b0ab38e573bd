"""Shows a job as an output that names it: the page draws the panel, of what the Jupyter server reads on disk.

The page asks for what it shows, so it needs nothing of the kernel: not when it is loaded again, not while the kernel is
busy, and not once the kernel is gone. `extension/lab/src/jobOutput.ts` draws the output.
"""

from __future__ import annotations

import time

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import records
from notebook_accel.notebook.views.static_views import HTML_INTERVAL, Bundle, RedrawnView
from notebook_accel.panel import html_page
from notebook_accel.panel.pacing import JobPacer
from notebook_accel.panel.panel_state import StateMaker

MIME = "application/vnd.notebook-accel.job+json"
_INTERVAL = 20.0
"""Seconds between two drawings of the HTML beside it, which a notebook has that is saved in between."""
RECORDED_WITHIN = 5.0
"""Seconds within which a job is on disk, unless it can't be recorded."""


class JobOutput(RedrawnView):
    """Names the job, with HTML and text in the same output for front ends that do not draw jobs."""

    is_seen = False
    """The page looks at the job's records, and its server says so there."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, draw, _INTERVAL)
        self._check_due: float | None = time.monotonic() + RECORDED_WITHIN

    def refresh(self) -> None:
        if self._check_due is not None and time.monotonic() > self._check_due:
            self._check_due = None
            if not records.are_of(self._job.id):  # the page would wait for it in vain
                self._draw, self._pacer = html_page.bundle, JobPacer(self._job, HTML_INTERVAL)
        super().refresh()


def draw(job: Job) -> Bundle:
    """The current output for a job. Until the end, it has the state that the page begins with."""
    if job.status.ended:
        return {MIME: {"job": job.id}, **html_page.bundle(job)}
    return {MIME: {"job": job.id, "state": StateMaker(job).whole()}, **html_page.bundle(job, fallback=True)}
