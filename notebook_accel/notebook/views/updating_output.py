"""Redraws one output below a cell, no more often than a browser can handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views.urgent_changes import UrgentChanges
from notebook_accel.panel.pacing import Pacer

Bundle = Mapping[str, str]
"""Text by MIME type, such as `text/html`."""


class Display:
    """A view that redraws its whole bundle whenever it has changed."""

    is_seen = True

    def __init__(self, job: Job, draw: Callable[[Job], Bundle], interval: float) -> None:
        from IPython.display import display

        self._job = job
        self._draw = draw
        self._pacer = Pacer(interval)
        self._urgent = UrgentChanges(job)
        with self._pacer:
            self._drawn = draw(job)
            self._handle = display(dict(self._drawn), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def refresh(self) -> None:
        if self._pacer.is_due() or self._urgent.any:
            self._urgent.mark_shown()
            with self._pacer:
                self.finish()

    def finish(self) -> None:
        bundle = self._draw(self._job)
        if bundle != self._drawn:
            self._drawn = bundle
            self._handle.update(dict(bundle), raw=True)
