"""Holds the beginnings of lines whose ends ranks have not written yet.

They wait a moment for the rest, here on the rank's own node: on the way to the notebook the two could come so far
apart that it would show them as two lines.
"""

from __future__ import annotations

import time

Stream = tuple[int, str]
"""A rank, by its number on this machine, and the name of one of its streams."""
WINDOW = 0.02
"""Seconds that a beginning is held. A prompt, which has no line end, is sent after this time."""
_MOST = 2**16
"""Bytes from which a line goes its way in pieces."""


class PartialLines:
    """One for each stream of output.

    Args:
        window: Seconds that a beginning is held.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._held: dict[Stream, tuple[bytes, float]] = {}

    def add(self, stream: Stream, data: bytes) -> bytes:
        """Takes what has been written; returns what of it may go, with what was held."""
        held = self.take(stream)
        end = data.rfind(b"\n") + 1
        tail = data[end:] if end else held + data
        if not tail or len(tail) > _MOST:
            return held + data
        self._held[stream] = tail, time.monotonic()
        return held + data[:end] if end else b""

    def take(self, stream: Stream) -> bytes:
        """What is held, which is held no more."""
        return self._held.pop(stream, (b"", 0.0))[0]

    def due(self) -> list[Stream]:
        """The streams whose lines have waited long enough."""
        now = time.monotonic()
        return [stream for stream, (_, since) in self._held.items() if now - since >= self._window]

    def pause(self, otherwise: float) -> float:
        """Seconds until there may be some."""
        return self._window if self._held else otherwise
