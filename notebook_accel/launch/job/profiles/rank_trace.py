"""The trace of one rank, as torch's profiler writes it, on the clock of its node."""

from __future__ import annotations

import gzip
import json
import statistics
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from notebook_accel.events import Profiled
from notebook_accel.launch.wire.constants import STEP_MARK


class Span(NamedTuple):
    """One event with a duration."""

    start: float
    """Microseconds on the clock of the `RankTrace`."""
    end: float
    name: str
    category: str
    """That of the profiler: `cpu_op`, `kernel`, `user_annotation`, …"""
    track: tuple[object, object]
    """The process and thread, or the device and stream, that it is shown at."""


@dataclass(frozen=True)
class RankTrace:
    """A trace with its clock aligned."""

    content: dict[str, Any]
    """As in the file."""
    shift: float
    """What to add to its times to get microseconds on the clock that `boundaries` has."""
    boundaries: list[float]
    """When the steps ended, in microseconds: on the monotonic clock of the node, or since the epoch."""

    @property
    def steps(self) -> int:
        """How many whole steps it has."""
        return len(self.boundaries) - 1

    def spans(self, wanted: Callable[[str], bool] = lambda category: True) -> list[Span]:
        """The events of certain categories that have a duration."""
        return [
            Span(at, at + float(event["dur"]), str(event["name"]), event["cat"], (event.get("pid"), event.get("tid")))
            for event in self.content["traceEvents"]
            if event.get("ph") == "X" and wanted(event.get("cat", ""))
            for at in [float(event["ts"]) + self.shift]
        ]


def read(profiled: Profiled, *, since_epoch: bool) -> RankTrace:
    """Reads the trace that a rank has sent.

    Args:
        profiled: What the rank has sent.
        since_epoch: Whether to use the clock that is the same on all nodes, about, instead of the monotonic one, which
            is the same for all ranks of one node.

    Raises:
        ValueError: The trace is damaged.
    """
    try:
        content = json.loads(gzip.decompress(profiled.trace[0]), strict=False)
        marks = sorted(
            float(event["ts"]) + float(event["dur"]) / 2 for event in content["traceEvents"] if _is_mark(event)
        )
        boundaries = [each / 1000 for each in profiled.boundaries]
        shift = statistics.median(at - mark for at, mark in zip(boundaries, marks, strict=True))
    except (OSError, EOFError, zlib.error, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"a damaged trace: {type(error).__name__}: {error}") from error
    if since_epoch:
        ahead = profiled.at * 1e6 - boundaries[0]
        return RankTrace(content, shift + ahead, [at + ahead for at in boundaries])
    return RankTrace(content, shift, boundaries)


def _is_mark(event: dict[str, Any]) -> bool:
    return event.get("name") == STEP_MARK and event.get("cat") == "user_annotation"
