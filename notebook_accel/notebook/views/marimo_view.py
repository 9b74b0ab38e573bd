"""The view in marimo: the panel is the cell's output, and stays there."""

from __future__ import annotations

import marimo

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views.panel import Panel, PanelView
from notebook_accel.panel.pacing import JobPacer, Pacer

_INTERVAL = 0.1
_SHARE = 0.02
_WHOLE_SECONDS = 2.0
"""Seconds between two full states: a browser that has missed a change can't request one while a cell runs."""


class MarimoView(PanelView):
    """Shows the panel, which marimo draws as it does any widget of anywidget."""

    is_seen = True

    def __init__(self, job: Job) -> None:
        super().__init__(job, JobPacer(job, _INTERVAL, _SHARE))
        self._whole_pacer = Pacer(_WHOLE_SECONDS)
        self._panel = Panel(self._maker.whole(), self._stop, lambda: None, on_request=self._request)
        marimo.output.append(self._panel)

    def refresh(self) -> None:
        self._maker.update_metrics()
        self._update_if_due()

    def finish(self) -> None:
        self._finished = True
        self._panel.request_keyframe()
        self._update()

    def _update(self) -> None:
        if self._whole_pacer.is_due():
            with self._whole_pacer:
                self._panel.request_keyframe()
        self._panel.update(self._maker.make())
