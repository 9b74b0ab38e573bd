"""What the steps of a rank spend their time on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.insight import profile_summary, profile_traces
from notebook_accel.insight.profile_summary import RankSummary
from tests.insight.traces import DEVICE, profiled, span

numbers = st.integers(0, 30)
spans = st.lists(st.tuples(numbers, numbers).map(sorted).map(tuple), max_size=8)


def summary(*events: dict[str, object], ends: tuple[float, ...] = (0, 1000)) -> RankSummary:
    return profile_summary.summarize(profile_traces.read(profiled(*events, ends=ends), since_epoch=False))


def seconds(found: RankSummary) -> list[float]:
    """Computation, communication, what of it is hidden, and gaps, in microseconds."""
    return [round(1e6 * each) for each in (found.compute, found.communication, found.hidden, found.gaps)]


@given(spans, spans)
def test_intervals_cover_what_their_points_do(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    def points(found: list[tuple[float, float]]) -> set[float]:
        return {point for start, end in found for point in range(int(start), int(end))}

    one, two = profile_summary.union(first), profile_summary.union(second)
    assert points(one) == points(first)
    assert points(profile_summary.both(one, two)) == points(first) & points(second)
    assert points(profile_summary.without(one, two)) == points(first) - points(second)
    assert profile_summary.length(one) == len(points(one))


def test_a_collective_is_hidden_while_operations_run() -> None:
    found = summary(
        span("aten::mm", 100, 400),
        span("aten::copy_", 150, 200),  # within the other
        span("gloo:all_reduce", 300, 600, "user_annotation", (70, 71)),
    )
    assert seconds(found) == [300, 300, 100, 500]
    assert (found.steps, found.on_device) == (1, False)
    assert found.step == pytest.approx(1e-3)


def test_a_call_that_waits_for_a_collective_is_no_computation() -> None:
    found = summary(
        span("AddmmBackward0", 100, 400),
        span("c10d::allreduce_", 200, 390),
        span("gloo:all_reduce", 210, 380, "user_annotation", (70, 71)),
    )
    assert seconds(found) == [110, 170, 0, 720]


def test_on_a_gpu_its_kernels_count_and_not_the_calls_that_queue_them() -> None:
    found = summary(
        span("aten::mm", 0, 900),
        span("sm90_gemm", 100, 300, "kernel", DEVICE),
        span("Memcpy HtoD", 300, 350, "gpu_memcpy", DEVICE),
        span("ncclDevKernel_AllReduce_Sum_f32", 200, 500, "kernel", (0, 8)),
        span("nccl:all_reduce", 10, 20, "user_annotation"),
    )
    assert seconds(found) == [250, 300, 150, 600]
    assert found.on_device


def test_only_the_steps_count() -> None:
    found = summary(span("aten::mm", 400, 1600), ends=(500, 1000, 1500))
    assert seconds(found) == [1000, 0, 0, 0]
    assert found.steps == 2
    assert found.longest_gaps == []


def test_a_gap_is_named_after_what_covers_it_or_what_is_around_it() -> None:
    found = summary(
        span("aten::mm", 0, 400),
        span("Trainer.loop", 0, 1000, "user_annotation"),
        span("enumerate(DataLoader)", 390, 700, "user_annotation"),
        span("aten::add", 700, 800),
        ends=(0, 800),
    )
    (gap,) = found.longest_gaps
    assert (round(1e6 * gap.seconds), gap.what) == (300, "in enumerate(DataLoader)")
    found = summary(span("aten::mm", 0, 400), span("aten::t", 100, 110), span("aten::add", 700, 1000))
    assert found.longest_gaps[0].what == "after aten::mm and before aten::add"
    assert summary().longest_gaps[0].what == "at an unknown place"
