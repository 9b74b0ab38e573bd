"""The traces of all ranks in one file, for https://ui.perfetto.dev and chrome://tracing: a process for each rank."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from notebook_accel.launch.job.profiles.rank_trace import RankTrace
from notebook_accel.launch.wire.constants import STEP_MARK

_IDS = 1000
"""Numbers of processes that each rank has in the file."""
_FLOWS = "stf"
_STEPS = "steps"
"""The track that has the steps of a rank."""


def write(path: Path, ranks: Iterable[int], read: Callable[[int], RankTrace], begin: float) -> None:
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
