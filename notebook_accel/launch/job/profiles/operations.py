"""The operations that took most of the profiled steps, and where ranks differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from notebook_accel.launch.job.profiles.rank_summary import DEVICE, is_call_of_collective, is_communication
from notebook_accel.launch.job.profiles.rank_trace import RankTrace, Span

_LEAST_RATIO = 1.25
"""How many times as long an operation takes on one rank than on another where ranks differ."""
_LEAST_SHARE = 0.02
"""The share of a step that this has to be."""


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
        step: The seconds of a step, in the mean.
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
