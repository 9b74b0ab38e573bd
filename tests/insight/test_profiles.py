"""What a profile says, draws and saves."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.events import Profiled
from notebook_accel.insight.profiles import JobProfile
from tests.insight.traces import profiled, span

REDUCE = "gloo:all_reduce"


def rank(slow: float = 0.0, **options: Any) -> Profiled:
    """A step of a millisecond: a product that takes 300 µs or more, and a collective of 200 µs."""
    return profiled(
        span("aten::mm<float>", 100, 400 + slow),
        span("aten::copy_", 150, 200),
        span(REDUCE, 700, 900, "user_annotation", (70, 71)),
        {"ph": "s", "id": 3, "pid": 70, "tid": 70, "ts": 160, "cat": "fwdbwd", "name": "fwdbwd"},
        **options,
    )


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


def test_the_text_has_the_parts_of_a_step_and_the_operations_where_ranks_differ() -> None:
    text = repr(JobProfile("train()", {0: rank(), 3: rank(200)}, ["rank 1 did not reply"], several_nodes=False))
    rest = "computation, 20% communication (0% of it overlapped)"
    assert text.splitlines() == [
        "train() on ranks 0,3: 1 step, 1.0 ms each",
        "rank 1 did not reply",
        f"rank 0: 1.0 ms a step: 30% {rest}, 50% gaps; longest gap 0.3 ms, after aten::mm<float> and before {REDUCE}",
        f"rank 3: 1.0 ms a step: 50% {rest}, 30% gaps; longest gap 0.1 ms, before aten::mm<float>",
        "operations, per step:",
        "  35%      0.35 ms     1.0 calls  aten::mm<float>; 0.25 ms on rank 0, 0.45 ms on rank 3",
        "  20%      0.20 ms     1.0 calls  gloo:all_reduce",
        "   5%      0.05 ms     1.0 calls  aten::copy_",
        "save(folder) writes traces for https://ui.perfetto.dev",
    ]


def test_a_call_that_starts_a_collective_is_no_operation_beside_it() -> None:
    waited = profiled(span("c10d::allreduce_", 0, 300), span(REDUCE, 50, 250, "user_annotation", (70, 71)))
    found = JobProfile("train()", {0: waited}, [], several_nodes=False)
    assert [(each.name, round(1e6 * each.seconds)) for each in found.operations] == [(REDUCE, 200)]


def test_a_small_difference_is_not_worth_a_word() -> None:
    assert " on rank " not in repr(JobProfile("train()", {0: rank(), 1: rank(20)}, [], several_nodes=False))


def test_the_picture_escapes_names_and_says_where_ranks_differ() -> None:
    drawn = JobProfile("train<>()", {0: rank(), 1: rank(200)}, ["<b>"], several_nodes=False)._repr_html_()
    assert "aten::mm&lt;float&gt;" in drawn
    assert "train&lt;&gt;()" in drawn
    assert "<div>&lt;b&gt;</div>" in drawn
    assert "0.25 ms on rank 0, 0.45 ms on rank 1" in drawn
    assert 'title="gaps: 0.50 ms a step"' in drawn
    assert "<script" not in drawn


def test_the_merged_trace_has_all_ranks_on_one_clock(tmp_path: Path) -> None:
    """The traces' own clocks begin anywhere; the monotonic clock is the same for both ranks."""
    found = JobProfile("train()", {0: rank(ahead=5_000_000), 1: rank(ahead=5_000_400)}, [], several_nodes=False)
    merged = events(found.save(tmp_path / "new" / "traces") / "merged.json.gz")
    begins = {event["pid"]: event["ts"] for event in merged if event["name"] == "aten::mm<float>"}
    assert begins == {1: 100.0, 1001: 500.0}
    steps = {event["pid"]: (event["ts"], event["dur"]) for event in merged if event["name"] == "step 1"}
    assert steps == {0: (0.0, 1000.0), 1000: (400.0, 1000.0)}
    assert {event["id"] for event in merged if event["ph"] == "s"} == {"0.3", "1.3"}
    names = {event["pid"]: event["args"]["name"] for event in merged if event["name"] == "process_name"}
    assert names == {0: "rank 0: steps", 1: "rank 0: python", 1000: "rank 1: steps", 1001: "rank 1: python"}
    assert len(events(tmp_path / "new" / "traces" / "rank-1.json.gz")) == 7
    assert "train() on ranks 0-1" in (tmp_path / "new" / "traces" / "summary.html").read_text()


def test_ranks_of_several_nodes_are_aligned_by_the_time_of_day(tmp_path: Path) -> None:
    """Their monotonic clocks have nothing in common."""
    ranks = {0: rank(ahead=7_000_000, at=1e9), 1: rank(ahead=99_000_000, at=1e9 + 0.0003)}
    ranks = {0: ranks[0], 1: replace(ranks[1], clock_error=0.0002), 2: replace(ranks[1], clock_error=0.00005)}
    found = JobProfile("train()", ranks, [], several_nodes=True)
    begins = [
        event["ts"] for event in events(found.save(tmp_path) / "merged.json.gz") if event["name"] == "aten::mm<float>"
    ]
    assert begins == pytest.approx([100, 400, 400], abs=2)
    assert "several machines, whose clocks were aligned to within 0.25 ms when the machines joined" in repr(found)


@pytest.mark.parametrize(
    "trace",
    [b"", b"no gzip", gzip.compress(b"[]"), gzip.compress(b'{"traceEvents": []}')],
    ids=["empty", "no gzip", "no mapping", "no events"],  # compressed data contains the time
)
def test_a_damaged_trace_is_left_out(trace: bytes) -> None:
    damaged = Profiled(1, boundaries=[0, 1000], trace=[trace])
    found = JobProfile("train()", {0: rank(), 1: damaged}, [], several_nodes=False)
    assert [*found.ranks] == [0]
    assert found.notes[0].startswith("rank 1 has sent a damaged trace: ")
    with pytest.raises(ValueError, match="rank 1 has sent a damaged trace"):
        JobProfile("train()", {1: damaged}, [], several_nodes=False)


def test_what_a_rank_says_about_its_trace_is_a_note() -> None:
    noted = Profiled(1, note="5 events are left out", boundaries=[0, 1_000_000], trace=rank().trace)
    assert JobProfile("train()", {2: noted}, [], several_nodes=False).notes == ["rank 2: 5 events are left out"]
