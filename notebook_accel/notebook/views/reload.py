"""Keeps a job in its cell when the page is reloaded: the kernel gives the page a new panel, and at the end the HTML.

A page that is reloaded while a cell runs can't ask the kernel for its widgets, and no longer knows which output belongs
to which display ID. It does accept new widgets at any time, so the kernel opens the panel again, and the panel's script
puts it, and at the end the HTML, into the notebook's output.

Such a page can't use a subshell either, without which ipykernel reads a widget's own messages only between cells. The
widgets' messages therefore also come on the kernel's control channel, which the kernel reads while a cell runs.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

_TYPE = "comm_info_request"
"""The type of the messages: one whose processing Jupyter's server and JupyterLab don't take for the end of a cell."""
_FIELD = "notebook_accel"
"""The field that a panel adds to such a message: `{"panel": its ID, "content": what it says}`."""
_EVERY = "*"
"""In place of the ID: for every panel, from a page that was opened while a cell runs, and so has no panel."""
_PING_AFTER = 4.0
"""Seconds without a change after which a message is sent only to have the page answer."""
_SILENCE = 12.0
"""Seconds without an answer after which a page counts as gone. A page that is there answers at least every 3 s."""
_FIRST_PAUSE = 1.0
"""Seconds until the first attempt to reach a page. Each further pause is twice as long: Jupyter's server stores what is
sent until a page returns, which may be the next morning."""
_MOST_ENDED = 20


class Receiver(Protocol):
    """A panel."""

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


class PageWatch:
    """What is known of the pages that show a widget. Nothing is expected of one that has never sent a message."""

    def __init__(self) -> None:
        self._has_heard = False
        self._pages: set[str] = set()
        self._is_missing = False
        self._sent_at = 0.0
        self._unanswered_since: float | None = None
        self._pause = _FIRST_PAUSE
        self._due: float | None = None

    def sent(self) -> None:
        """Records a message to the pages."""
        self._sent_at = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = self._sent_at

    def received(self, what: str, page: str) -> None:
        """Records a message from a page, received although the kernel may have been busy; see `Panel.receive`."""
        if what == "opened":
            self._is_missing = True
        elif what == "left":
            self._pages.discard(page)
        else:
            self._has_heard = True
            self._pages.add(page)
            self._unanswered_since = None

    @property
    def is_gone(self) -> bool:
        """Whether a page was there and none is any longer."""
        since = self._unanswered_since
        is_silent = since is not None and time.monotonic() - since > _SILENCE
        return self._has_heard and (not self._pages or is_silent)

    def ping_is_due(self) -> bool:
        """Whether to send a message without a change, since a page that receives nothing sends nothing."""
        return self._has_heard and time.monotonic() - self._sent_at > _PING_AFTER

    def reopening_is_due(self) -> bool:
        """Whether the panel should be opened again now.

        That is once for a page that lacks it, and with growing pauses while no page is there.
        """
        if self._is_missing:
            self._is_missing, self._due = False, None
            return True
        if not self.is_gone:
            self._pause, self._due = _FIRST_PAUSE, None
            return False
        now = time.monotonic()
        if self._due is None:
            self._due = now + self._pause
        if now < self._due:
            return False
        self._pause *= 2
        self._due = now + self._pause
        return True


class Closable(Protocol):
    """A panel."""

    def close(self) -> None: ...


class EndedPanels:
    """Panels that stay open for a page that opens the notebook later; each holds the last state of its job."""

    def __init__(self, most: int = _MOST_ENDED) -> None:
        self._most = most
        self._kept: deque[Closable] = deque()

    def keep(self, panel: Closable) -> None:
        """Leaves a panel open, and closes the oldest if there are too many."""
        self._kept.append(panel)
        while len(self._kept) > self._most:
            self._kept.popleft().close()

    def release(self, panel: Closable) -> None:
        """Closes a panel that no page needs any longer."""
        if panel in self._kept:
            self._kept.remove(panel)
        panel.close()


ended_panels = EndedPanels()
