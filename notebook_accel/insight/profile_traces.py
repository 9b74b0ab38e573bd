"""The traces of torch's profiler: one rank's, on the clock of its node, and those of all ranks in one file."""

from __future__ import annotations

import gzip
import json
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from notebook_accel.events import Profiled
from notebook_accel.launch.wire.constants import STEP_MARK

_IDS = 1000
"""Numbers of processes that each rank has in the file."""
_FLOWS = "stf"
_STEPS = "steps"
"""The track that has the steps of a rank."""


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


def write_merged(path: Path, ranks: Iterable[int], read: Callable[[int], RankTrace], begin: float) -> None:
    """Writes the file.

    Args:
        path: Its name.
        ranks: The global ranks.
        read: Reads the trace of a rank. They are read one after the other, since each may need much memory.
        begin: The time that the file begins at, in microseconds.
    """
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        separator = ""
        for rank in ranks:
            for event in events(rank, read(rank), begin):
                file.write(separator + json.dumps(event))
                separator = ",\n"
        file.write("\n]}\n")


def events(rank: int, trace: RankTrace, begin: float) -> Iterator[dict[str, Any]]:
    """The events of one rank, with numbers and names of their own, on the clock that all ranks share."""
    processes: dict[object, int] = {}
    for event in trace.content["traceEvents"]:
        process = event.get("pid")
        if type(process) is not int or event.get("name") == STEP_MARK:
            continue  # what the profiler says about itself; the steps have a track of their own
        number = processes.setdefault(process, rank * _IDS + len(processes) + 1)
        moved = {**event, "pid": number}
        if "ts" in event:
            moved["ts"] = round(float(event["ts"]) + trace.shift - begin, 3)
        if event.get("ph") in _FLOWS and "id" in event:
            moved["id"] = f"{rank}.{event['id']}"
        if event.get("ph") == "M":
            moved = _named(moved, rank)
        yield moved
    yield from _steps(rank, trace, begin)


def _named(event: dict[str, Any], rank: int) -> dict[str, Any]:
    """Names and orders processes by rank."""
    arguments: Mapping[str, Any] = event.get("args", {})
    if event["name"] == "process_name":
        return {**event, "args": {"name": f"rank {rank}: {arguments.get('name', '')}"}}
    if event["name"] == "process_sort_index":
        return {**event, "args": {"sort_index": event["pid"]}}
    return event


def _steps(rank: int, trace: RankTrace, begin: float) -> Iterator[dict[str, Any]]:
    process = rank * _IDS
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": f"rank {rank}: {_STEPS}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}}
    ends = zip(trace.boundaries, trace.boundaries[1:], strict=False)
    for number, (start, end) in enumerate(ends, 1):
        span = {"ts": round(start - begin, 3), "dur": round(end - start, 3), "pid": process, "tid": 0}
        yield {"ph": "X", "cat": "step", "name": f"step {number}", **span}
