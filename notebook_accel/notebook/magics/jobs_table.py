"""The table of `%accelerate jobs`: with buttons while jobs run, static HTML afterwards."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from notebook_accel.errors import NotebookAccelError
from notebook_accel.launch.driver import attach
from notebook_accel.launch.driver.attach import Jobs
from notebook_accel.launch.job.text import date, duration
from notebook_accel.launch.journal.job_summary import JobSummary
from notebook_accel.launch.show import front_end
from notebook_accel.launch.system import own_process
from notebook_accel.notebook.views.elements import element, table, text

_INTERVAL = 1.0
"""Seconds between two updates of a table with buttons."""
_COLUMNS = (
    ("Job", "9em"),
    ("Started", "11em"),
    ("Ran", "6em"),
    ("Ranks", "4em"),
    ("Name", "auto"),
    ("Status", "9em"),
)


def cells(listed: JobSummary) -> list[str]:
    """The texts of a row."""
    began = date(listed.started, seconds=True)
    return [listed.id, began, duration(listed.seconds), str(listed.ranks), listed.title, listed.status_text]


def draw(jobs: Jobs) -> dict[str, str]:
    """The table as static output, by MIME type."""
    rows = [[text(cell) for cell in cells(listed)] for listed in jobs]
    drawn = element("div", table(_COLUMNS, rows, wrap=True), "max-width:64em;line-height:1.4")
    return {"text/html": drawn, "text/plain": repr(jobs)}


class LiveTable:
    """A table with buttons below the current cell, which is updated while jobs run, on a thread of its own."""

    def __init__(self, jobs: Jobs, limit: int) -> None:
        from IPython.display import display

        from notebook_accel.notebook.magics.jobs_widget import JobsWidget

        self._context = contextvars.copy_context()  # what is attached appears below this cell
        self._limit = limit
        self._closed = threading.Event()
        self._widget = JobsWidget([name for name, _ in _COLUMNS], _rows(jobs), self._stop, self._attach)
        bundle: Any = self._widget._repr_mimebundle_()
        bundle, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        self._handle: Any = display(  # type: ignore[no-untyped-call]
            {**bundle, **draw(jobs)}, metadata=metadata, raw=True, display_id=True
        )
        own_process.start_thread(self._update, "notebook-accel-jobs")

    def close(self) -> None:
        """Replaces the buttons by static output."""
        self._closed.set()

    def _update(self) -> None:
        jobs = attach.jobs(self._limit)
        while not self._closed.wait(_INTERVAL) and any(not listed.status.ended for listed in jobs):
            jobs = attach.jobs(self._limit)
            self._widget.update(_rows(jobs))
        self._handle.update(draw(jobs), raw=True)
        self._widget.close()

    # Called on the thread that handles the browser's messages

    def _stop(self, job: str) -> None:
        with contextlib.suppress(NotebookAccelError):  # its folder was removed
            attach.find(job).cancel()

    def _attach(self, job: str) -> None:
        self._context.run(own_process.start_thread, partial(_show, job), "notebook-accel-attach")


_shown: LiveTable | None = None


def show(jobs: Jobs, limit: int) -> None:
    """Shows the table with buttons in place of the previous one. Its updates list at most `limit` jobs."""
    global _shown  # a kernel belongs to one user
    if _shown is not None:
        _shown.close()
    _shown = LiveTable(jobs, limit)


def _show(job: str) -> None:
    try:
        attach.attach(job)
    except NotebookAccelError as error:
        front_end.current.notice(str(error))


def _rows(jobs: Jobs) -> list[Mapping[str, Any]]:
    return [{"id": listed.id, "cells": cells(listed), "live": not listed.status.ended} for listed in jobs]
