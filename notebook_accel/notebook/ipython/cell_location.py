"""Sends output below the cell in whose context it is written, even if other cells have run since.

Newer versions of ipykernel do this themselves. Before 7.0, the parent of anything a thread displays is the last
request: the last cell or, after a message to a widget, no cell at all. Before 6.25, the same is true of anything a
thread writes.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_cell: ContextVar[dict[str, Any] | None] = ContextVar("cell", default=None)
"""The header of the request that runs the cell."""


class _Hooks(threading.local):
    """The hooks through which the kernel's publisher passes messages. Each thread has its own."""

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
        """Whether writes to the kernel's streams need their parent set too, which is so in ipykernel before 6.25."""
        if not publisher.has_trait("parent_header"):
            return  # newer versions keep the parent in the context
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
        # The stream would buffer the text briefly, and send it below the cell that runs at that time.
        now: Any = stream
        now.flush()
        content = {"name": now.name, "text": text}
        now.session.send(now.pub_thread, "stream", content=content, parent=cell, ident=now.topic)
