"""Whether a page still shows a widget."""

from __future__ import annotations

import pytest

from notebook_accel.notebook.views import control_channel
from notebook_accel.notebook.views.control_channel import PageWatch


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(control_channel.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_nothing_is_expected_of_a_page_that_never_says_anything_while_the_kernel_is_busy(clock: Clock) -> None:
    watch = PageWatch()
    watch.sent()
    clock.now += 1000
    assert not watch.is_gone
    assert not watch.ping_is_due()


def test_a_page_that_answers_is_there_and_one_that_stops_is_gone(clock: Clock) -> None:
    watch = PageWatch()
    watch.received()
    for _ in range(10):
        clock.now += 10
        watch.sent()
        watch.sent()
        assert not watch.is_gone
        watch.received()
    watch.sent()
    clock.now += 13
    assert watch.is_gone
    watch.received()
    assert not watch.is_gone


def test_a_kernel_that_has_sent_nothing_for_long_does_not_take_the_page_for_gone(clock: Clock) -> None:
    watch = PageWatch()
    watch.received()
    clock.now += 1000
    assert not watch.is_gone
    assert watch.ping_is_due()
    watch.sent()
    assert not watch.ping_is_due()


def test_a_night_without_a_page_sends_little(clock: Clock) -> None:
    watch = PageWatch()
    watch.received()
    sent = 0
    for _ in range(12 * 3600):
        if watch.ping_is_due():
            watch.sent()
            sent += 1
        clock.now += 1
    assert 3 < sent < 30
    watch.received()
    assert not watch.is_gone
    watch.sent()
    clock.now += 5
    assert watch.ping_is_due()
