"""How a kernel receives what a widget sends while a cell runs: on its control channel.

Without a subshell, ipykernel reads a widget's own messages only between cells. It reads the control channel while a
cell runs, too, so the panel's script sends its messages there.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_TYPE = "comm_info_request"
"""The type of the messages: one whose processing Jupyter's server and JupyterLab don't take for the end of a cell."""
_FIELD = "notebook_accel"
"""The field that a panel adds to such a message: `{"panel": its ID, "content": what it says}`."""
_PING_AFTER = 4.0
"""Seconds without a change after which a message is sent only to have the page answer."""
_SILENCE = 12.0
"""Seconds without an answer after which a page counts as gone. A page that is there answers at least every 3 s."""


class Receiver(Protocol):
    """A panel."""

    def receive(self, content: Mapping[str, Any]) -> None:
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
        receiver = None if message is None else _receivers.get(message["panel"])
        if receiver is not None:
            receiver.receive(message["content"])
        return self._own(stream, ident, parent)


class PageWatch:
    """Whether a page still shows a widget. Jupyter's server stores what is sent until a page reads it, overnight too.

    Nothing is expected of a page that has never sent a message on the control channel.
    """

    def __init__(self) -> None:
        self._has_received = False
        self._sent_at = 0.0
        self._unanswered_since: float | None = None
        self._pause = _PING_AFTER

    def sent(self) -> None:
        """Records a message to the page."""
        self._sent_at = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = self._sent_at
        self._pause = 2 * self._pause if self.is_gone else _PING_AFTER

    def received(self) -> None:
        """Records a message of a page."""
        self._has_received = True
        self._unanswered_since = None

    @property
    def is_gone(self) -> bool:
        """Whether a page was there and is there no longer."""
        since = self._unanswered_since
        return self._has_received and since is not None and time.monotonic() - since > _SILENCE

    def ping_is_due(self) -> bool:
        """Whether to send a message without a change, since a page that receives nothing sends nothing.

        Without an answer, the pauses between two of them grow.
        """
        return self._has_received and time.monotonic() - self._sent_at > self._pause
