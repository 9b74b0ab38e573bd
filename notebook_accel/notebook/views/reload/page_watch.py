"""Decides whether a page still shows a widget, and when the kernel should open it again for a reloaded page."""

from __future__ import annotations

import time

_PING_AFTER = 4.0
"""Seconds without a change after which a message is sent only to have the page answer."""
_SILENCE = 12.0
"""Seconds without an answer after which a page counts as gone. A page that is there answers at least every 3 s."""
_FIRST_PAUSE = 1.0
"""Seconds until the first attempt to reach a page. Each further pause is twice as long: Jupyter's server stores what is
sent until a page returns, which may be the next morning."""


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
        """Records a message from a page, received although the kernel may have been busy; see `PageWidget`."""
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
