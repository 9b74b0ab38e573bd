"""What the profiled steps spent their time on: computation, communication, and neither on each rank; operations."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from notebook_accel.insight.profile_traces import RankTrace, Span
from notebook_accel.launch.wire.constants import STEP_MARK

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""The categories of what a device does."""
_MOST_GAPS = 3
_MOST_BEFORE = 1000
"""Operations before a gap among which the last to end is searched."""
_BACKEND = re.compile(r"(gloo|mpi|ucc):\w")
"""The names of collectives that run on a CPU's threads."""
_CALL = re.compile(r"(c10d|_c10d_functional)::")
"""The names of calls that start a collective or wait for one."""
_LEAST_RATIO = 1.25
"""How many times as long an operation takes on one rank than on another where ranks differ."""
_LEAST_SHARE = 0.02
"""The share of a step that this has to be."""
Intervals = list[tuple[float, float]]


@dataclass(frozen=True)
class Gap:
    """A time in which the rank neither computed nor communicated."""

    seconds: float
    what: str
    """What happened during it or around it, as far as the trace shows."""


@dataclass(frozen=True)
class RankSummary:
    """The time of the profiled steps of one rank, in seconds over all steps."""

    steps: int
    """How many steps were profiled."""
    seconds: float
    """How long they took."""
    compute: float
    """Something was computed: on the GPU, if the rank has one; otherwise, an operation of torch ran."""
    communication: float
    """A collective ran."""
    hidden: float
    """Both: the communication that computation hides."""
    gaps: float
    """Neither."""
    longest_gaps: list[Gap]
    on_device: bool
    """Whether these times are those of a GPU."""
    begin: float
    """When the first step began, in microseconds on the clock of the trace."""

    @property
    def step(self) -> float:
        """Seconds of a step."""
        return self.seconds / self.steps


def is_communication(span: Span) -> bool:
    """Whether a collective runs in the span, on a device or on a CPU."""
    if span.category == "kernel":
        return "nccl" in span.name.lower()
    return span.category == "user_annotation" and bool(_BACKEND.match(span.name))


def is_call_of_collective(span: Span) -> bool:
    """Whether an operation of torch only starts a collective or waits for one."""
    return bool(_CALL.match(span.name))


def summarize(trace: RankTrace) -> RankSummary:
    """Adds up the time of the steps."""
    spans = trace.spans(lambda category: category in (*DEVICE, "cpu_op", "user_annotation"))
    window = [(trace.boundaries[0], trace.boundaries[-1])]
    on_device = any(span.category in DEVICE for span in spans)
    computing = both(_computing(spans, on_device=on_device), window)
    communicating = both(_covered(filter(is_communication, spans)), window)
    idle = without(window, union([*computing, *communicating]))
    return RankSummary(
        steps=trace.steps,
        seconds=length(window) / 1e6,
        compute=length(computing) / 1e6,
        communication=length(communicating) / 1e6,
        hidden=length(both(computing, communicating)) / 1e6,
        gaps=length(idle) / 1e6,
        longest_gaps=_describe(idle, spans),
        on_device=on_device,
        begin=trace.boundaries[0],
    )


def _covered(spans: Iterable[Span]) -> Intervals:
    return union((span.start, span.end) for span in spans)


def _computing(spans: list[Span], *, on_device: bool) -> Intervals:
    """When the rank computes: on the device, or in operations of torch that don't wait for a collective."""
    if on_device:
        return _covered(span for span in spans if span.category in DEVICE and not is_communication(span))
    tracks: dict[object, list[Span]] = {}
    for span in spans:
        if span.category == "cpu_op":
            tracks.setdefault(span.track, []).append(span)
    busy = [without(_covered(each), _covered(filter(is_call_of_collective, each))) for each in tracks.values()]
    return union(interval for each in busy for interval in each)


def _describe(idle: Intervals, spans: list[Span]) -> list[Gap]:
    longest = sorted(idle, key=lambda gap: gap[0] - gap[1])[:_MOST_GAPS]
    operations = sorted(span for span in spans if span.category != "user_annotation" or is_communication(span))
    annotations = [
        span
        for span in spans
        if span.category == "user_annotation" and span.name != STEP_MARK and not is_communication(span)
    ]
    return [Gap((end - start) / 1e6, _around(start, end, operations, annotations)) for start, end in longest]


def _around(start: float, end: float, operations: list[Span], annotations: list[Span]) -> str:
    """The shortest annotation, such as that of a loader, that covers most of the gap; otherwise what is around it."""
    covering = [each for each in annotations if min(end, each.end) - max(start, each.start) > (end - start) / 2]
    if covering:
        return f"in {min(covering, key=lambda each: each.end - each.start).name}"
    starts = [each.start for each in operations]
    position = bisect_right(starts, start)
    before = operations[max(0, position - _MOST_BEFORE) : position]
    last = max(before, key=lambda each: each.end, default=None)
    following = bisect_left(starts, end)
    parts = [f"after {last.name}"] if last is not None else []
    if following < len(operations):
        parts.append(f"before {operations[following].name}")
    return " and ".join(parts) or "at an unknown place"


@dataclass
class Usage:
    """What one operation takes on one rank, over all steps."""

    seconds: float = 0.0
    """The time in it, without the operations that it calls."""
    calls: int = 0


@dataclass(frozen=True)
class Operation:
    """An operation of torch, a kernel of a GPU, or a collective; all numbers are per step."""

    name: str
    seconds: float
    """The mean of all ranks."""
    calls: float
    """The mean of all ranks."""
    share: float
    """Of the mean step."""
    by_rank: Mapping[int, float]
    """Seconds, by global rank."""

    @property
    def differs(self) -> bool:
        """Whether ranks differ so much that it matters."""
        least, most = min(self.by_rank.values()), max(self.by_rank.values())
        step = self.seconds / self.share if self.share else 0.0
        return most >= _LEAST_RATIO * least and most - least >= _LEAST_SHARE * step > 0


def usage(trace: RankTrace) -> dict[str, Usage]:
    """What each operation takes on one rank: those of the GPU, if it has one, otherwise those of the CPU."""
    begin, end = trace.boundaries[0], trace.boundaries[-1]
    spans = [span for span in trace.spans() if begin <= span.start < end]
    on_device = any(span.category in DEVICE for span in spans)
    found: dict[str, Usage] = {}
    for span in spans:
        if is_communication(span) or (on_device and span.category in DEVICE):
            _add(found, span.name, span.end - span.start)
    if not on_device:
        for span, own in _own_times(span for span in spans if span.category == "cpu_op"):
            if not is_call_of_collective(span):
                _add(found, span.name, own)
    return found


def compare(usages: Mapping[int, dict[str, Usage]], steps: Mapping[int, int], step: float) -> list[Operation]:
    """The operations of all ranks, the longest first.

    Args:
        usages: What each operation takes, by global rank.
        steps: How many steps that is.
        step: The mean seconds of a step.
    """
    names = {name for found in usages.values() for name in found}
    operations = []
    for name in names:
        by_rank = {rank: found.get(name, Usage()).seconds / steps[rank] for rank, found in usages.items()}
        calls = sum(found.get(name, Usage()).calls / steps[rank] for rank, found in usages.items())
        mean = sum(by_rank.values()) / len(by_rank)
        operations.append(Operation(name, mean, calls / len(by_rank), mean / step if step else 0.0, by_rank))
    return sorted(operations, key=lambda operation: (-operation.seconds, operation.name))


def _add(found: dict[str, Usage], name: str, microseconds: float) -> None:
    entry = found.setdefault(name, Usage())
    entry.seconds += microseconds / 1e6
    entry.calls += 1


def _own_times(spans: Iterable[Span]) -> Iterable[tuple[Span, float]]:
    """The time of each span without those within it on the same track."""
    tracks: dict[object, list[Span]] = {}
    for span in spans:
        tracks.setdefault(span.track, []).append(span)
    for track in tracks.values():
        own: list[float] = []
        order = sorted(track, key=lambda span: (span.start, -span.end))
        open_spans: list[int] = []
        for number, span in enumerate(order):
            own.append(span.end - span.start)
            while open_spans and order[open_spans[-1]].end <= span.start:
                open_spans.pop()
            if open_spans:
                own[open_spans[-1]] -= span.end - span.start
            open_spans.append(number)
        yield from zip(order, own, strict=True)


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
