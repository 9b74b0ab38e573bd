"""Lines that have not ended, on their way."""

import pytest

from notebook_accel.launch.cluster.agent import partial_lines
from notebook_accel.launch.cluster.agent.partial_lines import PartialLines

OUT = (0, "stdout")


def test_whole_lines_go_and_a_beginning_waits_for_its_end() -> None:
    held = PartialLines()
    assert held.add(OUT, b"one\ntwo\nthr") == b"one\ntwo\n"
    assert held.add((1, "stdout"), b"four\n") == b"four\n"
    assert held.add(OUT, b"e") == b""
    assert held.add(OUT, b"e\nfi") == b"three\n"
    assert held.take(OUT) == b"fi"
    assert held.take(OUT) == b""


def test_a_beginning_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    held = PartialLines()
    held.add(OUT, b"answer: ")
    assert 0 < held.pause(60.0) < 1
    monkeypatch.setattr(partial_lines, "_WINDOW", 0.0)
    assert held.due() == [OUT]
    held.take(OUT)
    assert held.pause(60.0) == 60.0


def test_a_line_without_end_goes_in_pieces() -> None:
    held = PartialLines()
    written = b"x" * 40_000
    assert held.add(OUT, written) + held.add(OUT, written) == written * 2
    assert held.take(OUT) == b""
