"""Splits the bytes that a rank writes to a stream into lines, also where a line is redrawn, torn, or not ended."""

from __future__ import annotations

import codecs

PARTIAL_WINDOW = 0.5
"""Seconds after which an unfinished line is shown as it is."""
REDRAW_WINDOW = 5.0
"""The same for a line that is redrawn with carriage returns, such as a progress bar."""
MAX_LINE = 64 * 1024
"""Characters after which an unfinished line is split."""


class LineReader:
    """Splits what one rank writes to one stream into lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._partial = ""
        self._since: float | None = None

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that `data` completes."""
        text = self._partial + self._decoder.decode(data)
        *lines, self._partial = text.split("\n")
        lines += self._limit()
        if not self._partial:
            self._since = None
        elif lines or self._since is None:
            self._since = now
        return [_last_drawn(line) for line in lines]

    @property
    def is_open(self) -> bool:
        """Whether there is an unfinished line."""
        return self._since is not None

    def extend(self, seconds: float, now: float) -> None:
        """Extends the waiting time of the unfinished line: its end may have arrived, but not been read."""
        if self._since is not None:
            self._since = min(now, self._since + seconds)

    def overdue(self, now: float) -> list[str]:
        """The unfinished line, once it has waited long enough."""
        if self._since is None:
            return []
        window = REDRAW_WINDOW if "\r" in self._partial else PARTIAL_WINDOW
        return self._take_partial() if now - self._since >= window else []

    def rest(self) -> list[str]:
        """The unfinished line at the end of the stream."""
        self._partial += self._decoder.decode(b"", final=True)
        return self._take_partial()

    def _limit(self) -> list[str]:
        """Bounds the unfinished line: drops what was drawn over, and splits what is too long."""
        lines = []
        if "\r" in self._partial:
            before, _, last = self._partial.rpartition("\r")
            self._partial = f"\r{_last_drawn(before)}\r{last}"
        while len(self._partial) > MAX_LINE:
            lines.append(self._partial[:MAX_LINE])
            self._partial = self._partial[MAX_LINE:]
        return lines

    def _take_partial(self) -> list[str]:
        line = _last_drawn(self._partial)
        self._partial, self._since = "", None
        return [line] if line else []


def _last_drawn(line: str) -> str:
    """The last text drawn on a line with carriage returns, which is nearly what a terminal shows."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")
