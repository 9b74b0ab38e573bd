"""The view in marimo: the panel is the cell's output, and stays there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import marimo

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views.panel import Panel
from notebook_accel.panel.pacing import JobPacer, Pacer
from notebook_accel.panel.panel_state import StateMaker

_INTERVAL = 0.1
_SHARE = 0.02
_WHOLE_SECONDS = 2.0
"""Seconds between two full states: a browser that has missed a change can't request one while a cell runs."""


class MarimoView:
    """Shows the panel, which marimo draws as it does any widget of anywidget."""

    is_seen = True

    def __init__(self, job: Job) -> None:
        self._job = job
        self._maker = StateMaker(job)
        self._finished = False
        self._pacer = JobPacer(job, _INTERVAL, _SHARE)
        self._whole_pacer = Pacer(_WHOLE_SECONDS)
        self._panel = Panel(self._maker.whole(), self._stop, lambda: None, on_request=self._request)
        marimo.output.append(self._panel)

    def refresh(self) -> None:
        self._maker.update_metrics()
        if self._pacer.is_due() or self._panel.keyframe_requested:
            with self._pacer:
                self._update()
        if reply := self._maker.reply():
            self._pacer.sent(self._panel.answer(reply))

    def finish(self) -> None:
        self._finished = True
        self._panel.request_keyframe()
        self._update()

    def _request(self, message: Mapping[str, Any]) -> None:
        self._maker.request(message)
        if self._finished and (reply := self._maker.reply(at_once=True)):
            self._panel.answer(reply)  # the job's driver no longer draws

    def _update(self) -> None:
        if self._whole_pacer.is_due():
            with self._whole_pacer:
                self._panel.request_keyframe()
        self._panel.update(self._maker.make())

    def _stop(self, click: int) -> None:
        if click > self._job.stopping:
            self._job.cancel()
