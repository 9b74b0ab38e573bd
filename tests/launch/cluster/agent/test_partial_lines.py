"""Lines that have not ended, on their way."""

from notebook_accel.launch.cluster.agent.partial_lines import WINDOW, PartialLines

OUT = (0, "stdout")


def test_whole_lines_go_and_a_beginning_waits_for_its_end() -> None:
    held = PartialLines()
    assert held.add(OUT, b"one\ntwo\nthr") == b"one\ntwo\n"
    assert held.add((1, "stdout"), b"four\n") == b"four\n"
    assert held.add(OUT, b"e") == b""
    assert held.add(OUT, b"e\nfi") == b"three\n"
    assert held.take(OUT) == b"fi"
    assert held.take(OUT) == b""


def test_a_beginning_does_not_wait_for_ever() -> None:
    assert 0 < WINDOW < 1
    held = PartialLines(window=3600.0)
    held.add(OUT, b"answer: ")
    assert held.due() == []
    assert held.any
    held = PartialLines(window=0.0)
    held.add(OUT, b"answer: ")
    assert held.due() == [OUT]
    held.take(OUT)
    assert not held.any


def test_a_line_without_end_goes_in_pieces() -> None:
    held = PartialLines()
    written = b"x" * 40_000
    assert held.add(OUT, written) + held.add(OUT, written) == written * 2
    assert held.take(OUT) == b""
