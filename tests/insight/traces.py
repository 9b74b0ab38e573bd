"""Traces as torch's profiler writes them, made by hand."""

from __future__ import annotations

import gzip
import json
from typing import Any

from notebook_accel.events import Profiled
from notebook_accel.launch.wire.constants import STEP_MARK

CPU, DEVICE = (70, 70), (0, 7)
"""The process and thread, and the device and stream."""


def span(name: str, start: float, end: float, category: str = "cpu_op", track: tuple[int, int] = CPU) -> dict[str, Any]:
    """An event from and to these microseconds of the trace's own clock."""
    process, thread = track
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, "ts": start, "dur": end - start}


def profiled(
    *events: dict[str, Any], ends: tuple[float, ...] = (0, 1000), ahead: float = 0.0, at: float = 0
) -> Profiled:
    """What a rank sends.

    Args:
        events: The events of the trace.
        ends: When steps end, in microseconds of the trace's own clock.
        ahead: Microseconds by which the node's monotonic clock is ahead of that.
        at: When the first of them was, in seconds since the epoch.
    """
    marks = [span(STEP_MARK, end - 1, end + 1, "user_annotation") for end in ends]
    name = {"ph": "M", "name": "process_name", "pid": CPU[0], "tid": 0, "ts": 0, "args": {"name": "python"}}
    text = json.dumps({"traceEvents": [name, *marks, *events], "baseTimeNanoseconds": 5})
    boundaries = [round(1000 * (end + ahead)) for end in ends]
    return Profiled(1, boundaries=boundaries, at=at, trace=[gzip.compress(text.encode())])
