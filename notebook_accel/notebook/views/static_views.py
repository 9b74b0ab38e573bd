"""The views `html` and `text`: one output without scripts, redrawn in place; the last one stays in the notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel.launch.job.describe import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.panel import html_page
from notebook_accel.panel.pacing import JobPacer

Bundle = Mapping[str, Any]
"""Text by MIME type, such as `text/html`, or what JSON can say."""
HTML_INTERVAL = 0.33
_TEXT_INTERVAL = 0.5


class RedrawnView:
    """A view that redraws its whole bundle whenever it has changed."""

    is_seen = True

    def __init__(self, job: Job, draw: Callable[[Job], Bundle], interval: float) -> None:
        from IPython.display import display

        self._job = job
        self._draw = draw
        self._pacer = JobPacer(job, interval)
        with self._pacer:
            self._drawn = draw(job)
            self._handle = display(dict(self._drawn), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def refresh(self) -> None:
        if self._pacer.is_due():
            with self._pacer:
                self.finish()

    def finish(self) -> None:
        bundle = self._draw(self._job)
        if bundle != self._drawn:
            self._drawn = bundle
            self._handle.update(dict(bundle), raw=True)


class HtmlView(RedrawnView):
    """Draws into one output above the ranks' output, and updates it three times a second."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, html_page.bundle, HTML_INTERVAL)


class TextView(RedrawnView):
    """Draws into one output above the ranks' output, and updates it."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, draw_text, _TEXT_INTERVAL)


def draw_text(job: Job) -> Bundle:
    """The current output for a job."""
    return {"text/plain": describe(job)}
