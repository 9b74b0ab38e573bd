"""Samples of a thread's stack, added up to a tree of calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from notebook_accel.events import Sampled, SamplesRequested
from notebook_accel.launch.rank.stacks import stack_profile
from notebook_accel.launch.rank.stacks.stack_profile import StackProfiles


@contextmanager
def waiting(depth: int) -> Iterator[int]:
    """A thread that waits below so many calls of `descend`; its number."""
    ready, over = threading.Event(), threading.Event()

    def descend(left: int) -> None:
        if left > 1:
            descend(left - 1)
        else:
            ready.set()
            over.wait()

    thread = threading.Thread(target=descend, args=(depth,))
    thread.start()
    ready.wait()
    assert thread.ident is not None
    try:
        yield thread.ident
    finally:
        over.set()
        thread.join()


def sampled(thread: int, times: list[float]) -> Sampled:
    """The report of a request at 0, with samples at these times."""
    profiles = StackProfiles(thread)
    profiles.begin(SamplesRequested(1, seconds=100.0, rate=10), 0.0)
    for now in times:
        assert profiles.sample(now) == []
    (report,) = profiles.finish()
    assert profiles.finish() == []
    return report


def test_a_sample_counts_for_the_time_since_the_one_before() -> None:
    with waiting(depth=3) as thread:
        report = sampled(thread, [0.1, 0.2, 5.2])
    assert (report.samples, report.seconds, report.idle) == (3, 5.2, 0.0)
    assert sum(report.microseconds) == 5_200_000
    assert [frame.name for frame in report.frames[:3]] == ["descend"] * 3
    assert list(report.callers) == list(range(-1, len(report.frames) - 1))
    assert report.microseconds[-1] == 5_200_000  # in the innermost call: the wait


def test_code_whose_constants_cannot_be_hashed_is_sampled() -> None:
    ready, over = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        over.wait()

    code = wait.__code__.replace(co_consts=(*wait.__code__.co_consts, []))  # type: ignore[arg-type]
    thread = threading.Thread(target=type(wait)(code, {}, closure=wait.__closure__))
    thread.start()
    ready.wait()
    assert thread.ident is not None
    try:
        report = sampled(thread.ident, [0.1, 0.2])
    finally:
        over.set()
        thread.join()
    assert report.frames[0].name == "wait"


def test_samples_before_they_are_due_are_not_taken() -> None:
    with waiting(depth=1) as thread:
        assert sampled(thread, [0.01, 0.05, 0.1, 0.11]).samples == 1


def test_time_in_which_no_code_of_the_user_runs_is_idle() -> None:
    report = sampled(-1, [0.1, 0.3])
    assert (report.idle, report.frames) == (0.3, [])


@pytest.mark.parametrize("limit", ["MOST_CALLS", "MOST_DEPTH"])
def test_a_tree_has_a_limited_size(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(stack_profile, limit, 4)
    with waiting(depth=10) as thread:
        report = sampled(thread, [0.1])
    assert [frame.name for frame in report.frames] == ["descend"] * 4
    assert list(report.microseconds) == [0, 0, 0, 100_000]
