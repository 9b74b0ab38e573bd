"""Keeps the panels of ended jobs until a page has stored their HTML in the notebook."""

from __future__ import annotations

from collections import deque
from typing import Protocol

_MOST = 20


class Closable(Protocol):
    """A panel."""

    def close(self) -> None: ...


class EndedPanels:
    """Panels that stay open for a page that opens the notebook later; each holds the last state of its job."""

    def __init__(self, most: int = _MOST) -> None:
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


current = EndedPanels()
