"""A trace that is too long loses its shortest events."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from notebook_accel.launch.rank import step_profiles


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace that torch has written."""
    with torch.profiler.profile() as profiler:
        with torch.profiler.record_function("kept"):
            pass
        parameter = torch.ones(500, 500, requires_grad=True)
        for _ in range(50):
            (parameter @ parameter).sum().backward()  # type: ignore[no-untyped-call]
            parameter.detach().t()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    return tmp_path / "trace.json"


def test_a_short_trace_stays_as_it_is(trace: Path) -> None:
    found, note = step_profiles.compressed(trace, trace.stat().st_size, b"kept")
    assert gzip.decompress(found) == trace.read_bytes()
    assert note == ""


def test_a_long_one_keeps_the_longest_events_and_says_what_it_lost(trace: Path) -> None:
    most = trace.stat().st_size // 4
    found, note = step_profiles.compressed(trace, most, b"kept")
    text = gzip.decompress(found)
    assert most // 2 < len(text) <= most + 1000
    before, after = json.loads(trace.read_bytes()), json.loads(text)
    assert after["baseTimeNanoseconds"] == before["baseTimeNanoseconds"]
    names = {event["name"] for event in after["traceEvents"]}
    assert {"kept", "process_name", "aten::mm"} <= names
    dropped = len(before["traceEvents"]) - len(after["traceEvents"])
    assert note.startswith(
        f"{dropped} of {len(before['traceEvents'])} events are left out of the trace, those of up to "
    )
    limit = float(note.split()[-2])
    left_out = [event["dur"] for event in before["traceEvents"] if event.get("dur", 0) > limit]
    assert len(left_out) == sum(event.get("dur", 0) > limit for event in after["traceEvents"])
    assert not any(event["ph"] in "sf" for event in after["traceEvents"]), "arrows would point to nothing"
