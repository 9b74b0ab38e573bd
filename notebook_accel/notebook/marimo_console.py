"""marimo as the console of launches: the panel in the cell's output, the ranks' output below the cell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from notebook_accel.events import InputRequested
from notebook_accel.launch.engines import preloader
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Terminal, View


class Marimo(Terminal):
    """Shows jobs as panels: marimo draws anywidget's widgets by itself."""

    preloads_after = 1  # marimo calls nothing after a cell

    def choose_view(self) -> Callable[[Job], View]:
        from notebook_accel.notebook.views.marimo_view import MarimoView

        return MarimoView

    def show(self, job: Job) -> View:
        return self.choose_view()(job)

    def request_input(self, request: InputRequested) -> str | None:
        self.write("stdout", request.output)
        return console.read_line(request)

    def origin(self) -> str:
        import marimo

        return str(marimo.notebook_location() or "")


def is_running() -> bool:
    """Whether this code runs in a cell of a marimo notebook that is open in a browser."""
    marimo: Any = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook())


def attach() -> None:
    """Makes marimo the console of this process, if this is a marimo notebook."""
    if is_running():
        console.use(Marimo())
        preloader.current.update()
