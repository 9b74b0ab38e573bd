"""No report of a rank is left out, whether few or many are held, and however many threads report."""

from __future__ import annotations

import gc
import math
import resource
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from notebook_accel.events import Reports, as_float
from notebook_accel.launch.rank import report_buffer
from notebook_accel.launch.rank.report_buffer import ReportBuffer

_FEW = 64
"""As `MOST_IN_MEMORY` and `MOST_ROWS` here, so that a file is needed soon."""


def rows(taken: Iterator[Reports]) -> list[tuple[dict[str, float], int | None]]:
    return [(dict(values), step) for reports in taken for values, step, _ in reports.rows()]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_buffer, "MOST_IN_MEMORY", 2 * _FEW)
    monkeypatch.setattr(report_buffer, "MOST_ROWS", _FEW)


def test_a_hundred_reports_of_one_moment_are_all_sent_in_one_event() -> None:
    buffer = ReportBuffer()
    given: list[tuple[dict[str, float], int | None]] = [({"loss": float(step)}, step) for step in range(100)]
    given += [({"loss": math.inf, "val/loss": 0.5}, None), ({"other": 1.0}, 2**70)]
    for values, step in given:
        buffer.add({**values}, step)
    (reports,) = buffer.take()
    given[-1] = ({"other": 1.0}, None)  # such a number is not a step
    assert rows(iter([reports])) == given
    assert list(buffer.take()) == []


def test_reports_that_are_held_are_no_work_for_the_garbage_collector() -> None:
    buffer, loss = ReportBuffer(), 0.5
    gc.collect()
    before = len(gc.get_objects())
    for step in range(1000):
        buffer.add({"loss": loss, "lr": 0.1}, step)
    assert len(gc.get_objects()) - before < 100
    assert sum(reports.count for reports in buffer.take()) == 1000


@pytest.mark.parametrize("step", [None, 3])
@pytest.mark.parametrize("value", [1, math.nan, 10**400, -math.inf])
def test_a_value_of_any_kind_arrives_among_others(value: float, step: int | None) -> None:
    buffer = ReportBuffer()
    for each in (0.5, value, 0.25):
        buffer.add({"loss\x1b[31m": each}, step)
    found = rows(buffer.take())
    assert [names for names, _ in found] == [
        {"loss": pytest.approx(as_float(each), nan_ok=True)} for each in (0.5, value, 0.25)
    ]
    assert [each for _, each in found] == [step] * 3


@pytest.mark.usefixtures("few")
def test_many_reports_wait_in_a_file_and_come_in_order() -> None:
    buffer = ReportBuffer()
    for step in range(10 * _FEW + 7):
        buffer.add({"loss": float(step)}, step)
    assert buffer.in_memory < 2 * _FEW
    found = rows(buffer.take())
    assert found == [({"loss": float(step)}, step) for step in range(10 * _FEW + 7)]
    buffer.add({"loss": 0.0}, 0)
    assert rows(buffer.take()) == [({"loss": 0.0}, 0)]


@pytest.mark.usefixtures("few")
def test_a_full_disk_leaves_no_report_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    buffer = ReportBuffer()
    for step in range(10 * _FEW):
        buffer.add({"loss": float(step)}, step)
    assert [step for _, step in rows(buffer.take())] == list(range(10 * _FEW))


@pytest.mark.usefixtures("few")
def test_a_disk_that_is_full_in_the_middle_of_a_file_leaves_no_report_out() -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))  # a frame is smaller, and two are not
    try:
        buffer = ReportBuffer()
        for step in range(10 * _FEW):
            buffer.add({"loss": float(step)}, step)
        assert buffer.in_memory < 10 * _FEW
        assert [step for _, step in rows(buffer.take())] == list(range(10 * _FEW))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("few")
def test_a_report_does_not_wait_for_the_thread_that_takes() -> None:
    buffer = ReportBuffer()
    with buffer.lock:  # as while reports are packed
        reporting = threading.Thread(
            target=lambda: [buffer.add({"loss": 1.0}, step) for step in range(10 * _FEW)], daemon=True
        )
        reporting.start()
        reporting.join(10)
        assert not reporting.is_alive()
    assert len(rows(buffer.take())) == 10 * _FEW


@pytest.mark.usefixtures("few")
def test_reports_of_several_threads_arrive_once_and_in_order_while_others_are_taken() -> None:
    buffer, count, found = ReportBuffer(), 5000, []

    def report(name: str) -> None:
        for step in range(count):
            buffer.add({name: float(step)}, step)

    threads = [threading.Thread(target=report, args=(name,)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found += rows(buffer.take())
    found += rows(buffer.take())
    for name in ("a", "b", "c"):
        assert [step for values, step in found if name in values] == list(range(count))


def test_what_is_taken_is_bounded_so_that_requests_are_answered_in_between() -> None:
    """A thread that reports faster than others are sent must not keep the channel's thread forever."""
    buffer = ReportBuffer()
    buffer.add({"loss": 0.0}, 0)
    taken = 0
    for reports in buffer.take():
        taken += reports.count
        buffer.add({"loss": 1.0}, taken)
        assert taken < 5
    assert taken == 1
