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
        self._finished = False
        self._panel = Panel(self._session, self._received)
        marimo.output.append(self._panel)

    def refresh(self) -> None:
        if self._whole_pacer.is_due():
            with self._whole_pacer:
                self._session.needs_whole = True
        self._session.look()
        self._push_if_due()

    def finish(self) -> None:
        self._finished = True
        self._session.needs_whole = True
        self._push_changes()

    def _received(self, _: bool) -> None:
        """Called after each message, on the thread that handles it."""
        if self._finished:  # the job's driver no longer draws
            self._push_answers(at_once=True)
            self._push_changes()
