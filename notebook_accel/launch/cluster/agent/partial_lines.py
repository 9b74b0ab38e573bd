"""Holds the beginnings of lines that ranks have not finished yet.

They wait briefly for the rest, here on the rank's own node. On the way to the notebook, the two parts could be delayed
so differently that the notebook would show them as two lines.
"""

from __future__ import annotations

import time

Stream = tuple[int, str]
"""A rank, by its number on this machine, and the name of one of its streams."""
WINDOW = 0.1
"""Seconds that a beginning is held. A prompt, which has no line end, is sent after this time."""
_MOST = 2**16
"""Bytes from which a line is sent in pieces."""


class PartialLines:
    """The unfinished lines, one for each output stream.

    Args:
        window: How many seconds the beginning of a line is held.
    """

    def __init__(self, window: float = WINDOW) -> None:
        self._window = window
        self._held: dict[Stream, tuple[bytes, float]] = {}

    def add(self, stream: Stream, data: bytes) -> bytes:
        """Takes new output; returns the part to send now, including what was held."""
        held = self.take(stream)
        end = data.rfind(b"\n") + 1
        tail = data[end:] if end else held + data
        if not tail or len(tail) > _MOST:
            return held + data
        self._held[stream] = tail, time.monotonic()
        return held + data[:end] if end else b""

    def take(self, stream: Stream) -> bytes:
        """Returns the held beginning of a line, and stops holding it."""
        return self._held.pop(stream, (b"", 0.0))[0]

    def due(self) -> list[Stream]:
        """The streams whose unfinished lines have waited long enough."""
        now = time.monotonic()
        return [stream for stream, (_, since) in self._held.items() if now - since >= self._window]

    @property
    def any(self) -> bool:
        """Whether a line is held."""
        return bool(self._held)
