"""The screens between the output of ranks and the console."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from notebook_accel.launch.show import console
from notebook_accel.launch.show.screens import BoundedScreen, GuardedScreen
from tests.launch.journal.cases import Notices


class Page:
    """A notebook's output as it is saved: streams, and displays as last updated."""

    updates_displays = True

    def __init__(self) -> None:
        self._outputs: dict[str, str] = {}
        self.sent = 0

    def write(self, stream: str, text: str) -> None:
        self._outputs[f"{stream} {len(self._outputs)}"] = text

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        assert update is (display_id in self._outputs)
        self._outputs[display_id] = data["text/plain"]
        self.sent += len(data["text/plain"])

    @property
    def lines(self) -> list[str]:
        return [line for text in self._outputs.values() for line in text.rstrip("\n").split("\n")]


def numbers(start: int, stop: int) -> str:
    return "".join(f"{number}\n" for number in range(start, stop))


def test_the_first_and_the_last_lines_stay_with_the_place_of_all() -> None:
    page = Page()
    screen = BoundedScreen(page, "log() returns all lines")
    for start in range(0, 100_000, 400):
        screen.write("stdout", numbers(start, start + 400))
        screen.refresh(0.0)
    screen.refresh(0.0, is_last=True)
    first, last = [str(number) for number in range(1000)], [str(number) for number in range(99_000, 100_000)]
    assert page.lines == [*first, "… 98,000 lines are left out here; log() returns all lines …", *last]


def test_nothing_is_left_out_of_output_that_fits() -> None:
    page = Page()
    screen = BoundedScreen(page, "log() returns all lines")
    screen.write("stdout", numbers(0, 900))
    screen.write("stderr", numbers(900, 1700))
    screen.refresh(0.0)
    assert page.lines[-1] == "1699"
    assert page.sent < 2000, "only the last lines are drawn again and again"
    screen.refresh(0.0, is_last=True)
    assert page.lines == numbers(0, 1700).split("\n")[:-1]


def test_lines_stay_around_what_is_displayed_between_them() -> None:
    page = Page()
    screen = BoundedScreen(page, "log() returns all lines")
    screen.write("stdout", numbers(0, 1000))
    for epoch in range(1, 5):
        screen.write("stdout", numbers(1000 * epoch, 1000 * epoch + 400))
        screen.display({"text/plain": f"figure {epoch}"}, {}, f"figure {epoch}")
    screen.write("stdout", "end\n")
    screen.display({"text/plain": "figure 4 again"}, {}, "figure 4", update=True)
    screen.refresh(0.0, is_last=True)
    lines = page.lines[1000:]
    assert lines[:4] == ["… 601 lines are left out here; log() returns all lines …", "figure 1", "2201", "2202"]
    assert lines[lines.index("figure 2") - 1 :][:3] == ["2399", "figure 2", "3000"]
    assert lines[-3:] == ["4399", "figure 4 again", "end"]


def test_few_lines_that_are_very_long_are_bounded_too() -> None:
    page = Page()
    screen = BoundedScreen(page, "log() returns all lines")
    for number in range(200):
        screen.write("stdout", f"{number} {'x' * 10_000}\n")
    screen.refresh(0.0, is_last=True)
    assert sum(map(len, page.lines)) < 2 * 2**18 + 10_000
    assert page.lines[-1].startswith("199 ")
    assert any("left out" in line for line in page.lines)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Notices:
    found = Notices()
    monkeypatch.setattr(console, "current", found)
    return found


def test_lines_that_a_closed_stream_refuses_are_named_once_and_later_ones_are_shown(
    screen: Notices, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, other = io.StringIO(), io.StringIO()
    closed.close()
    guarded = GuardedScreen(screen, "train()", "log() has all lines")
    monkeypatch.setattr(sys, "stdout", closed)
    guarded.write("stdout", "a\n")
    guarded.write("stdout", "b\n")
    monkeypatch.setattr(sys, "stdout", other)
    guarded.write("stdout", "c\n")
    assert other.getvalue() == "c\n"
    (told,) = screen.told
    assert told == (
        "output of train() can't be shown, because sys.stdout doesn't take it (ValueError: I/O operation on closed "
        "file). The job is not affected; log() has all lines"
    )


def test_a_display_that_fails_is_named(screen: Notices) -> None:
    GuardedScreen(screen, "train()", "log() has all lines").display({"text/plain": "40%"}, {}, "bar")
    (told,) = screen.told
    assert told.startswith(
        "output of train() can't be shown, because the notebook doesn't take it (NotImplementedError"
    )


def test_a_pipe_that_nobody_reads_ends_the_program(screen: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Pipe())
    with pytest.raises(BrokenPipeError):
        GuardedScreen(screen, "train()", "").write("stdout", "a\n")
