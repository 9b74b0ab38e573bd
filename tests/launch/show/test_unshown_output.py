"""Output that can't be shown ends no job."""

from __future__ import annotations

import io
import sys

import pytest

from notebook_accel.launch.show import front_end
from notebook_accel.launch.show.recorded_screen import GuardedScreen
from tests.launch.journal.cases import Notices


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Notices:
    found = Notices()
    monkeypatch.setattr(front_end, "current", found)
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
