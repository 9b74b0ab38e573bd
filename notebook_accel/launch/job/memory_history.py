"""The memory of a rank over time, in few points: many of the last seconds, few of long ago."""

from __future__ import annotations

from dataclasses import dataclass, field

_MOST = 32
"""Points, of which half are left when there are as many."""
_SHOWN = 6


@dataclass
class MemoryHistory:
    """Resident memory at moments. Adding its points to an empty history makes an equal one."""

    points: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the epoch, and bytes: the most until the next point."""

    def add(self, at: float, resident: int) -> None:
        """Adds a sample; one without a time is left out."""
        if at:
            self.points.append((at, resident))
            if len(self.points) == _MOST:
                self.points = _thinned(self.points)

    def last(self) -> tuple[float, list[int]]:
        """How many seconds the points cover, and the memory at moments evenly spaced over them, also the last one."""
        if len(self.points) < 2:
            return 0.0, []
        begin, end = self.points[0][0], self.points[-1][0]
        moments = [begin + (end - begin) * index / (_SHOWN - 1) for index in range(_SHOWN)]
        moments[-1] = end
        found = [next(point for point in reversed(self.points) if point[0] <= moment) for moment in moments]
        return end - begin, [resident for _, resident in dict.fromkeys(found)]


def _thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Half as many points at most. The longer ago, the more are merged into the largest of them; the last one stays."""
    now, span = points[-1][0], points[-1][0] - points[0][0] or 1.0
    merged: dict[int, tuple[float, int]] = {}
    for at, resident in points[:-1]:
        age = max(0.0, min(1.0, (now - at) / span))
        place = round((_MOST // 2 - 2) * age ** (1 / 3))
        begun, most = merged.get(place, (at, 0))
        merged[place] = begun, max(most, resident)
    return [*merged.values(), points[-1]]
