"""The last collectives, as torch's flight recorder has them."""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_accel.events import Collective, CollectivesRecorded, CollectivesRequested
from notebook_accel.launch.rank import flight_recorder

NOW = 1_800_000_000_000_000_000
"""Nanoseconds since the epoch."""


def entry(**changes: Any) -> dict[str, Any]:
    """An all-reduce of gloo that has ended, two seconds ago."""
    return {
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "is_p2p": False,
        "input_dtypes": ["Float", "Long"],
        "input_sizes": [[256, 10], [3]],
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "retired": True,
        "state": "scheduled",
        "time_created_ns": NOW - 2_000_000_000,
        "time_discovered_completed_ns": 0,
    } | changes


def last(monkeypatch: pytest.MonkeyPatch, dumped: dict[str, Any] | None, most: int = 100) -> CollectivesRecorded:
    """What is reported of a dump of the recorder; `None` where torch has none."""
    c10d = SimpleNamespace()
    if dumped is not None:
        c10d._dump_fr_trace_json = lambda includeCollectives: json.dumps(dumped)
    distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", c10d)
    monkeypatch.setattr(time, "time", lambda: NOW / 1e9)
    return flight_recorder.last(CollectivesRequested(3, most))


def test_an_entry_has_its_operation_its_shapes_and_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    found = last(monkeypatch, {"entries": [entry()]})
    assert (found.number, found.error, found.at) == (3, "", NOW / 1e9)
    shapes = "float[256, 10], long[3]"
    assert list(found.entries) == [
        Collective("0", "default_pg", 7, "all_reduce", shapes, 4 * 2560 + 8 * 3, pytest.approx(2.0), done=True)
    ]


def test_nccl_tells_when_a_collective_has_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"time_discovered_completed_ns": NOW - 1_500_000_000, "retired": False, "state": "completed"}
    ended, running = last(
        monkeypatch,
        {"entries": [entry(**times), entry(retired=False, state="started", time_discovered_completed_ns=None)]},
    ).entries
    assert (ended.done, ended.seconds) == (True, pytest.approx(0.5))
    assert (running.done, running.seconds) == (False, None)


def test_what_two_ranks_send_is_numbered_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = last(
        monkeypatch, {"entries": [entry(is_p2p=True, p2p_seq_id=2, profiling_name="nccl:send 0->1")]}
    ).entries
    assert (found.number, found.between_two, found.operation) == (2, True, "send 0->1")


def test_only_the_last_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    found = last(monkeypatch, {"entries": [entry(collective_seq_id=number) for number in range(5)]}, most=2)
    assert [each.number for each in found.entries] == [3, 4]


def test_a_torch_that_records_nothing_is_told_from_a_rank_that_has_done_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert last(monkeypatch, {"version": "2.10"}).error == ""
    assert "torch records no collectives here" in last(monkeypatch, None).error
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "0")
    assert "remove TORCH_FR_BUFFER_SIZE=0" in last(monkeypatch, {"version": "2.10"}).error
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    assert flight_recorder.last(CollectivesRequested(3, 1)) == CollectivesRecorded(3, [], at=NOW / 1e9)
