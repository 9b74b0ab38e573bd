"""Detects whether a browser draws widgets: the cell's origin suggests it, and an answer from the widget proves it.

The kernel handles a widget's messages only between cells, unless the front end uses a subshell. A missing answer
therefore counts only while no cell runs.
"""

from __future__ import annotations

import sys
import threading
import time
from importlib import util
from typing import Any

SILENCE = 1.5
"""Seconds without an answer, while the kernel is idle, after which no answer is expected."""


class Browsers:
    """What this kernel knows about the browsers that show its notebook."""

    def __init__(self) -> None:
        self._silent = False
        self._free_since: float | None = None
        """When the last cell ended; `None` while one runs, and before the first has ended."""
        self._awaited: dict[object, float] = {}
        """What is waiting for an answer, and since when."""
        self._ended: set[object] = set()
        """Which of them no longer change; their answer is awaited until the next cell begins."""

    def draw_widgets(self) -> bool:
        """Whether to expect that the browser draws widgets, for the cell that is running."""
        return not self._silent and _asked_from_notebook() and util.find_spec("anywidget") is not None

    def expect(self, shown: object) -> None:
        """Starts to wait for an answer to a widget that is about to be shown."""
        self._silent = False
        self._awaited[shown] = time.monotonic()

    def answered(self, shown: object) -> None:
        """Records that a browser has answered. Others that it was too slow to answer for are then expected again."""
        self._silent = False
        if shown in self._awaited:
            self._forget(shown)
            for each in list(self._awaited):
                self._awaited[each] = time.monotonic()

    def is_silent(self, shown: object) -> bool:
        """Whether all browsers could have answered but none has."""
        since = self._awaited.get(shown)
        if since is not None and self._free_since is not None:
            self._silent |= time.monotonic() - max(since, self._free_since) > SILENCE
        return since is not None and self._silent

    def ended(self, shown: object) -> None:
        """Records that a widget no longer changes."""
        if shown in self._awaited:
            self._ended.add(shown)

    # Called by the shell, before and after each cell

    def cell_begins(self) -> None:
        for shown in list(self._awaited):
            self.is_silent(shown)
            if shown in self._ended:
                self._forget(shown)
        self._free_since = None

    def cell_ends(self) -> None:
        self._free_since = time.monotonic()

    def _forget(self, shown: object) -> None:
        self._awaited.pop(shown, None)
        self._ended.discard(shown)


def _asked_from_notebook() -> bool:
    """Whether the running cell was sent by a notebook that is open in front of a user.

    JupyterLab, Jupyter Notebook and VS Code send the cell's ID with the request. Consoles and nbclient, and therefore
    nbconvert and papermill, do not. A server's environment variables are a weaker hint, because all processes that the
    kernel starts inherit them.
    """
    return bool(cell_id()) or (_parent() is not None and "google.colab" in sys.modules)


def page_session() -> str:
    """The ID of the connection through which the running cell was sent; empty outside of an IPython kernel."""
    return str(((_parent() or {}).get("header") or {}).get("session") or "")


def cell_id() -> str:
    """The id of the notebook's cell that is running, if the front end has sent it; otherwise empty."""
    return str(((_parent() or {}).get("metadata") or {}).get("cellId") or "")


def say_busy() -> None:
    """Says that the running cell still runs.

    JupyterLab shows the kernel as idle once it has handled a message of a widget, even while a cell runs.
    """
    kernel = _kernel()
    if kernel is not None and threading.current_thread() is threading.main_thread():  # which runs cells
        kernel.session.send(kernel.iopub_socket, "status", {"execution_state": "busy"}, parent=_parent())


def _parent() -> dict[str, Any] | None:
    """The request that runs the cell; `None` outside of an IPython kernel."""
    kernel = _kernel()
    return None if kernel is None else kernel.get_parent() or {}


def _kernel() -> Any:
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None)


current = Browsers()
