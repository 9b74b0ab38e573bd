"""What keeps a job in its cell when the page is reloaded."""

from __future__ import annotations

import pytest

from notebook_accel.notebook.views import reload
from notebook_accel.notebook.views.reload import EndedPanels, PageWatch


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(reload.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_nothing_is_expected_of_a_page_that_never_says_anything_while_the_kernel_is_busy(clock: Clock) -> None:
    watch = PageWatch()
    watch.sent()
    clock.now += 1000
    assert not watch.is_gone
    assert not watch.ping_is_due()
    assert not watch.reopening_is_due()


def test_a_page_that_answers_is_there_and_one_that_stops_is_gone(clock: Clock) -> None:
    watch = PageWatch()
    watch.received("seen", "a")
    for _ in range(10):
        clock.now += 10
        watch.sent()
        watch.sent()
        assert not watch.is_gone
        watch.received("seen", "a")
    watch.sent()
    clock.now += 13
    assert watch.is_gone
    watch.received("seen", "a")
    assert not watch.is_gone


def test_a_kernel_that_has_sent_nothing_for_long_does_not_take_the_page_for_gone(clock: Clock) -> None:
    watch = PageWatch()
    watch.received("seen", "a")
    clock.now += 1000
    assert not watch.is_gone
    assert watch.ping_is_due()
    watch.sent()
    assert not watch.ping_is_due()


def test_a_page_that_leaves_takes_no_panel_from_one_that_stays(clock: Clock) -> None:
    watch = PageWatch()
    for page in "ab":
        watch.received("seen", page)
    watch.received("left", "a")
    clock.now += 100
    assert not watch.is_gone
    assert not watch.reopening_is_due()
    watch.received("left", "b")
    assert watch.is_gone


def test_a_night_without_a_page_makes_few_panels(clock: Clock) -> None:
    watch = PageWatch()
    watch.received("seen", "a")
    watch.sent()
    opened = 0
    for _ in range(12 * 3600):
        opened += watch.reopening_is_due()
        clock.now += 1
    assert 0 < opened < 20


def test_the_panel_is_opened_again_at_growing_intervals_until_a_page_is_there(clock: Clock) -> None:
    watch = PageWatch()
    watch.received("seen", "a")
    watch.received("left", "a")
    opened = []
    for second in range(130):
        if watch.reopening_is_due():
            opened.append(second)
        clock.now += 1
    assert opened == [1, 3, 7, 15, 31, 63, 127]
    watch.received("seen", "a")
    assert not watch.reopening_is_due()
    watch.received("left", "a")
    assert [watch.reopening_is_due(), setattr(clock, "now", clock.now + 1), watch.reopening_is_due()] == [
        False,
        None,
        True,
    ]


def test_the_panel_is_opened_once_for_a_page_that_lacks_it_beside_one_that_shows_it(clock: Clock) -> None:
    watch = PageWatch()
    watch.received("seen", "a")
    watch.received("opened", "b")
    assert not watch.is_gone
    assert watch.reopening_is_due()
    clock.now += 100
    assert not watch.reopening_is_due()


def test_the_panel_is_opened_at_once_for_a_page_that_has_returned(clock: Clock) -> None:
    watch = PageWatch()
    watch.received("seen", "a")
    watch.received("left", "a")
    assert not watch.reopening_is_due()
    watch.received("opened", "b")
    assert watch.reopening_is_due()
    assert not watch.reopening_is_due()  # which begins the pause
    clock.now += 1
    assert watch.reopening_is_due()


class Panel:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_the_last_panels_stay_open_until_a_page_has_stored_their_html() -> None:
    ended = EndedPanels(3)
    panels = [Panel() for _ in range(6)]
    for panel in panels[:4]:
        ended.keep(panel)
    assert [panel.is_closed for panel in panels] == [True, False, False, False, False, False]
    ended.release(panels[2])
    ended.release(panels[0])  # another page has stored it, too
    ended.keep(panels[4])
    assert [panel.is_closed for panel in panels] == [True, False, True, False, False, False]
    ended.keep(panels[5])
    assert [panel.is_closed for panel in panels] == [True, True, True, False, False, False]
