"""Intervals of time: sorted lists of `(start, end)` that don't overlap."""

from __future__ import annotations

from collections.abc import Iterable

Intervals = list[tuple[float, float]]


def union(spans: Iterable[tuple[float, float]]) -> Intervals:
    """All that any of the spans covers."""
    found: Intervals = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > start:
            found.append((start, end))
    return found


def both(first: Intervals, second: Intervals) -> Intervals:
    """What both cover."""
    found: Intervals = []
    left = right = 0
    while left < len(first) and right < len(second):
        start = max(first[left][0], second[right][0])
        end = min(first[left][1], second[right][1])
        if start < end:
            found.append((start, end))
        if first[left][1] < second[right][1]:
            left += 1
        else:
            right += 1
    return found


def without(first: Intervals, second: Intervals) -> Intervals:
    """What the first covers and the second does not."""
    if not first:
        return []
    edge = first[0][0], first[-1][1]
    ends = [edge[0], *(each for span in second for each in span), edge[1]]
    outside = [(start, end) for start, end in zip(ends[::2], ends[1::2], strict=True) if start < end]
    return both(first, outside)


def length(spans: Intervals) -> float:
    """How long they are together."""
    return sum(end - start for start, end in spans)
