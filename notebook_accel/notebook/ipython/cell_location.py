"""Sends output below the cell whose context it is written in, whichever cell has run since.

Newer ipykernels do so themselves. Before 7.0, what a thread displays has the last request as its parent: the last cell
or, after a message to a widget, no cell at all. Before 6.25, so has what a thread writes.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_cell: ContextVar[dict[str, Any] | None] = ContextVar("cell", default=None)
"""The header of the request that runs it."""


class _Hooks(threading.local):
    """What the kernel's publisher passes its messages through: in each thread of its own."""

    def __init__(self) -> None:
        self.hooks = [_route]


def _route(message: dict[str, Any]) -> dict[str, Any]:
    cell = _cell.get()
    if cell is not None:
        message["parent_header"] = cell
    return message


class CellRouter:
    """Sets the parent of messages to the cell that they belong to."""

    def __init__(self, shell: InteractiveShell) -> None:
        publisher: Any = shell.display_pub
        self._writes = "parent_header" in vars(sys.stdout)
        """Whether writes to the kernel's streams need their parent set too: ipykernel before 6.25."""
        if not publisher.has_trait("parent_header"):
            return  # newer ones keep it by context
        before = list(publisher._hooks)
        publisher._thread_local = _Hooks()
        publisher._hooks.extend(before)
        self._publisher = publisher
        shell.events.register("pre_run_cell", self._begin)
        self._begin()

    def _begin(self, *_: object) -> None:
        _cell.set(self._publisher.parent_header)

    def write(self, stream: TextIO, text: str) -> None:
        """Writes to a stream of the kernel."""
        cell = _cell.get() if self._writes else None
        if cell is None or threading.current_thread() is threading.main_thread():
            stream.write(text)
            return
        # The stream would keep it for a moment, and send it below the cell that runs then.
        now: Any = stream
        now.flush()
        content = {"name": now.name, "text": text}
        now.session.send(now.pub_thread, "stream", content=content, parent=cell, ident=now.topic)
