"""Receives the panels' messages on the kernel's control channel, which the kernel also reads while a cell runs.

ipykernel reads a widget's own messages only between cells, unless the front end uses a subshell, which it can't do on a
page that was loaded while a cell runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_TYPE = "comm_info_request"
"""The type of the messages: one whose processing Jupyter's server and JupyterLab don't take for the end of a cell."""
_FIELD = "notebook_accel"
"""The field that a panel adds to such a message: `{"panel": its ID, "content": what it says}`."""
_EVERY = "*"
"""In place of the ID: for every panel, from a page that was opened while a cell runs, and so has no panel."""


class Receiver(Protocol):
    """A panel, or the table of jobs."""

    def receive(self, page: str, content: Mapping[str, Any]) -> None:
        """Handles a message of a page, on the thread of the control channel."""


_receivers: weakref.WeakValueDictionary[str, Receiver] = weakref.WeakValueDictionary()


def listen(panel: str, receiver: Receiver) -> None:
    """Passes the messages of a panel, given by its ID, to `receiver`; does nothing outside of an IPython kernel."""
    from IPython import get_ipython

    kernel: Any = getattr(get_ipython(), "kernel", None)
    handlers = getattr(kernel, "control_handlers", None)
    if not isinstance(handlers, dict) or _TYPE not in handlers:
        return
    _receivers[panel] = receiver
    if not isinstance(handlers[_TYPE], _Handler):
        handlers[_TYPE] = _Handler(handlers[_TYPE])


class _Handler:
    """Handles the panels' messages before the kernel's own handler, which answers the request."""

    def __init__(self, own: Callable[[Any, Any, Mapping[str, Any]], Any]) -> None:
        self._own = own

    def __call__(self, stream: Any, ident: Any, parent: Mapping[str, Any]) -> Any:
        message = parent["content"].get(_FIELD)
        if message is not None:
            for receiver in _addressed(message["panel"]):
                receiver.receive(str(parent["header"].get("session", "")), message["content"])
        return self._own(stream, ident, parent)


def _addressed(panel: str) -> list[Receiver]:
    if panel == _EVERY:
        return list(_receivers.values())
    receiver = _receivers.get(panel)
    return [] if receiver is None else [receiver]
