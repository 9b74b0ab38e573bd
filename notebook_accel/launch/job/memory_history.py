"""The memory of a rank over time, in few points."""

from __future__ import annotations

_MOST = 64
"""Points; when there are as many, every second one is dropped."""
_SHOWN = 6


class MemoryHistory:
    """The largest resident memory of each of a limited number of intervals, which grow with the time."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []
        """Seconds since the epoch, and bytes."""
        self._interval = 0.0

    def add(self, at: float, resident: int) -> None:
        """Adds a sample; one without a time is left out."""
        if not at:
            return
        if self._points and at - self._points[-1][0] < self._interval:
            begun, before = self._points[-1]
            self._points[-1] = begun, max(before, resident)
            return
        self._points.append((at, resident))
        if len(self._points) >= _MOST:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(at, max(one, other)) for (at, one), (_, other) in pairs]
            self._interval = (at - self._points[0][0]) / len(self._points)

    def last(self) -> tuple[float, list[int]]:
        """How many seconds the points cover, and a few of them, evenly chosen; the last one is the last of all."""
        if len(self._points) < 2:
            return 0.0, []
        count = min(_SHOWN, len(self._points))
        step = (len(self._points) - 1) / (count - 1)
        shown = [self._points[round(index * step)][1] for index in range(count)]
        return self._points[-1][0] - self._points[0][0], shown
