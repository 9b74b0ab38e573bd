"""The panel in the browser: when it is told anew, and that it is received."""

from __future__ import annotations

import math
from collections.abc import Callable

import IPython.display
import pytest

from notebook_accel.events import (
    AttemptStarted,
    Event,
    Exited,
    Failed,
    InputRequested,
    Metrics,
    Phase,
    PhaseChanged,
    Raised,
    Signalled,
)
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.notebook.views import widget, widget_support
from notebook_accel.notebook.views.panel import Panel
from notebook_accel.notebook.views.widget import WidgetView
from notebook_accel.panel.pacing import Pacer
from notebook_accel.panel.panel_model import PanelUpdate
from notebook_accel.panel.panel_session import PanelSession
from tests.panel.test_panel_state import merged


class Told:
    """A view that has no turn any more, and which ranks it tells the browser to have failed."""

    def __init__(self, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(IPython.display, "display", lambda *args, **kwargs: _Handle())
        monkeypatch.setattr(Panel, "push", lambda panel, update: self._push(update))
        monkeypatch.setattr(widget, "Panel", self._opened)
        monkeypatch.setattr(widget, "Pacer", lambda *limits: Pacer(math.inf))
        monkeypatch.setattr(widget, "INTERVAL", math.inf)
        self._found: list[list[int]] = []
        self._job = job
        self._view = WidgetView(job)
        self._view.refresh()

    def after(self, rank: int | None, event: Event) -> list[list[int]]:
        """What is told of this, and at once."""
        self._found.clear()
        self._job.apply(rank, event)
        self._view.refresh()
        self._view.refresh()
        return list(self._found)

    def _opened(self, session: PanelSession, received: Callable[[bool], object]) -> Panel:
        panel = Panel(session, received)
        self._state = panel.keyframe["state"]
        return panel

    def _push(self, update: PanelUpdate) -> int:
        self._state = merged(self._state, update["patch"])
        self._found.append(self._state["head"]["failed"])
        return 1


class _Handle:
    def update(self, bundle: object, metadata: object, raw: bool) -> None:
        pass


FAILED = Failed([Raised("ValueError", "ValueError: no", [])], 1.0)


def test_the_first_failure_is_shown_at_once_and_others_in_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(Job("train", 0, 4), monkeypatch)
    assert told.after(3, FAILED) == [[3]]
    assert told.after(2, FAILED) == []
    assert told.after(1, Exited(None, 9)) == []
    assert told.after(None, AttemptStarted(1)) == []
    assert told.after(0, Signalled(15)) == []
    assert told.after(0, Exited(None, 15)) == [], "it was stopped"
    assert told.after(1, Exited(None, 9)) == [[1]]


def test_a_request_for_input_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(Job("train", 0, 4), monkeypatch)
    assert told.after(3, PhaseChanged(Phase.RUNNING)) == []
    assert told.after(3, InputRequested("", "well? ")) == [[]]


def test_a_browser_that_answers_as_soon_as_it_hears_of_the_panel_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Answered(Panel):
        def __init__(self, session: PanelSession, received: Callable[[bool], object]):
            super().__init__(session, received)
            received(False)

    shown = widget_support.Browsers()
    monkeypatch.setattr(widget_support, "current", shown)
    monkeypatch.setattr(widget, "Panel", Answered)
    monkeypatch.setattr(IPython.display, "display", lambda *args, **kwargs: _Handle())
    view = WidgetView(Job("train", 0, 2))
    shown.cell_ends()
    monkeypatch.setattr(widget_support, "SILENCE", -1.0)
    assert not shown.is_silent(view)


def test_a_browser_that_answers_late_is_expected_to_draw_what_it_was_too_slow_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = widget_support.Browsers()
    monkeypatch.setattr(widget_support, "SILENCE", -1.0)
    shown.expect("first")
    shown.cell_ends()
    assert shown.is_silent("first")
    shown.expect("second")
    monkeypatch.setattr(widget_support, "SILENCE", 60.0)
    shown.answered("second")
    assert not shown.is_silent("first")
    monkeypatch.setattr(widget_support, "SILENCE", -1.0)
    assert shown.is_silent("first")
    shown.answered("second")
    assert shown.is_silent("first"), "only a first answer proves something new"


def test_the_panel_ends_with_the_last_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a page that was loaded again, nothing replaces the panel: it stays as it was told last."""
    told: list[PanelUpdate] = []
    monkeypatch.setattr(IPython.display, "display", lambda *args, **kwargs: _Handle())
    monkeypatch.setattr(Panel, "push", lambda panel, update: told.append(update) or 1)
    monkeypatch.setattr(widget, "Pacer", lambda *limits: Pacer(math.inf))
    job = Job("train", 0, 1)
    job.apply(0, Metrics({"loss": 1.0}, 0))
    view = WidgetView(job)
    job.apply(0, Metrics({"loss": 0.25}, 1))
    job.finish(Status.DONE)
    view.finish()
    assert told[-1]["patch"]["metrics"]["loss"]["now"] == "0.25"
