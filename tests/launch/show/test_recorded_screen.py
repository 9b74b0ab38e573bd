"""What is recorded of the ranks' output for a page that could not receive it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.show import front_end, recorded_screen
from notebook_accel.launch.show.job_views import Views
from notebook_accel.launch.show.recorded_screen import RecordedScreen


class Screen:
    updates_displays = True

    def write(self, stream: str, text: str) -> None:
        pass

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        pass


def lines(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def test_lines_and_displays_are_recorded_in_order_with_the_last_state_of_each() -> None:
    screen = RecordedScreen(Screen(), "log() has it")
    screen.write("stdout", "a\n")
    screen.write("stdout", "b\n")
    screen.write("stderr", "c\n")
    screen.display({"text/plain": "40%"}, {}, "bar")
    screen.write("stdout", "d\n")
    screen.display({"text/plain": "100%"}, {}, "bar", update=True)
    screen.display({"text/plain": "of the notebook"}, {}, "other", update=True)
    bar = {"output_type": "display_data", "data": {"text/plain": "100%"}, "metadata": {}, "updated": True}
    assert screen.outputs == [lines("a\nb\n"), lines("c\n", "stderr"), bar, lines("d\n")]


def test_nothing_is_kept_once_the_views_of_a_job_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "current", Screen())
    job = Job("train", 0, 1)
    screen = recorded_screen.record(job)
    views = Views(job, front_end.NoView)
    for _ in range(2):
        screen.write("stdout", "a\n")
        screen.display({"text/plain": "40%"}, {}, "bar")
    assert len(job.runner.outputs()) == 3
    views.finish()
    screen.write("stdout", "late\n")
    screen.display({"text/plain": "100%"}, {}, "bar", update=True)
    screen.display({"text/plain": "0%"}, {}, "another")
    assert job.runner.outputs() == []


def test_what_is_too_much_for_a_message_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_screen, "MOST_CHARACTERS", 10)
    screen = RecordedScreen(Screen(), "log() has it")
    for text in ("first\n", "much too long\n", "last\n"):
        screen.write("stdout", text)
    assert screen.outputs == [lines("first\n"), lines("… further output is not here: log() has it\n")]
