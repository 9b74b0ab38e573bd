"""What the profiled steps of one rank spent their time on: computation, communication, and neither."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from notebook_accel.launch.job.profiles import intervals
from notebook_accel.launch.job.profiles.intervals import Intervals
from notebook_accel.launch.job.profiles.rank_trace import RankTrace, Span
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


@dataclass(frozen=True)
class Gap:
    """A time in which the rank neither computed nor communicated."""

    seconds: float
    what: str
    """What happened during it or around it, as far as the trace tells."""


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
    computing = intervals.both(_computing(spans, on_device=on_device), window)
    communicating = intervals.both(_covered(filter(is_communication, spans)), window)
    idle = intervals.without(window, intervals.union([*computing, *communicating]))
    return RankSummary(
        steps=trace.steps,
        seconds=intervals.length(window) / 1e6,
        compute=intervals.length(computing) / 1e6,
        communication=intervals.length(communicating) / 1e6,
        hidden=intervals.length(intervals.both(computing, communicating)) / 1e6,
        gaps=intervals.length(idle) / 1e6,
        longest_gaps=_describe(idle, spans),
        on_device=on_device,
        begin=trace.boundaries[0],
    )


def _covered(spans: Iterable[Span]) -> Intervals:
    return intervals.union((span.start, span.end) for span in spans)


def _computing(spans: list[Span], *, on_device: bool) -> Intervals:
    """When the rank computes: on the device, or in operations of torch that don't wait for a collective."""
    if on_device:
        return _covered(span for span in spans if span.category in DEVICE and not is_communication(span))
    tracks: dict[object, list[Span]] = {}
    for span in spans:
        if span.category == "cpu_op":
            tracks.setdefault(span.track, []).append(span)
    busy = [
        intervals.without(_covered(each), _covered(filter(is_call_of_collective, each))) for each in tracks.values()
    ]
    return intervals.union(interval for each in busy for interval in each)


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
