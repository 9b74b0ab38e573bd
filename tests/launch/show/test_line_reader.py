import itertools
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.launch.show.line_reader import MAX_LINE, PARTIAL_WINDOW, REDRAW_WINDOW, LineReader


def read(pieces: Sequence[bytes]) -> list[str]:
    """The lines of a rank that writes these pieces and ends."""
    reader = LineReader()
    return [line for piece in pieces for line in reader.feed(piece, 0.0)] + reader.rest()


plain = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)


@st.composite
def torn_text(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    text = "\n".join(draw(st.lists(plain, max_size=6)))
    data = text.encode()
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return text, [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(torn_text())
def test_lines_are_whole_however_they_are_torn(case: tuple[str, list[bytes]]) -> None:
    text, pieces = case
    *whole, last = text.split("\n")
    assert read(pieces) == whole + ([last] if last else [])


@given(st.lists(st.binary(max_size=6), max_size=6))
def test_bytes_that_are_no_text_are_shown_as_such(pieces: list[bytes]) -> None:
    data = b"".join(pieces).replace(b"\r", b"")
    lines = data.decode(errors="replace").split("\n")
    assert read([piece.replace(b"\r", b"") for piece in pieces]) == lines[:-1] + ([lines[-1]] if lines[-1] else [])


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"\xe2\x82", b"\xac\n"], ["€"]),
        ([b"\xe2", b"\x82", b"x\n"], ["\ufffdx"]),
        ([b"a\xff", b"b\n"], ["a\ufffdb"]),
        ([b"a\xe2\x82\n", b"\xacb\n"], ["a\ufffd", "\ufffdb"]),
        ([b"a\n\xe2\x82"], ["a", "\ufffd"]),
    ],
)
def test_a_character_may_be_torn(pieces: list[bytes], lines: list[str]) -> None:
    assert read(pieces) == lines


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ("a\r\nb\r\n", ["a", "b"]),
        ("\r 10%\r 20%\r 30%\n", [" 30%"]),
        (" 10%\r 20%\r\n", [" 20%"]),
        ("10%\r20%\r30%\rdone\n", ["done"]),
        ("\r\n", [""]),
        ("before\n\rbar\nafter", ["before", "bar", "after"]),
        ("\rbar", ["bar"]),
        ("bar\r", ["bar"]),
    ],
)
def test_of_a_line_that_is_drawn_over_the_last_state_counts(written: str, lines: list[str]) -> None:
    data = written.encode()
    assert read([data]) == lines
    assert read([data[at : at + 1] for at in range(len(data))]) == lines
    assert read([piece + b"\r" for piece in data.split(b"\r")[:-1]] + [data.split(b"\r")[-1]]) == lines


def test_a_bar_that_is_drawn_for_long_takes_no_memory() -> None:
    reader = LineReader()
    tracemalloc.start()
    for step in range(2000):
        assert reader.feed(f"\rstep {step} {'#' * 100}".encode(), 0.0) == []
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 20_000  # of 220,000 that were written


def test_a_prompt_is_shown_once_it_has_waited() -> None:
    reader = LineReader()
    assert reader.feed(b"one\npassword: ", 10.0) == ["one"]
    assert reader.overdue(10.0 + 0.9 * PARTIAL_WINDOW) == []
    assert reader.overdue(10.0 + PARTIAL_WINDOW) == ["password: "]
    assert reader.overdue(10.0 + 2 * PARTIAL_WINDOW) == []
    assert reader.feed(b"secret\n", 20.0) == ["secret"]


def test_a_line_waits_from_its_own_beginning() -> None:
    reader = LineReader()
    reader.feed(b"first", 0.0)
    reader.feed(b" still first\nsecond", 0.4)
    assert reader.overdue(0.4 + 0.9 * PARTIAL_WINDOW) == []
    assert reader.overdue(0.4 + PARTIAL_WINDOW) == ["second"]


def test_a_bar_waits_longer_than_a_prompt() -> None:
    reader = LineReader()
    reader.feed(b"\r10%", 0.0)
    assert reader.overdue(PARTIAL_WINDOW) == []
    reader.feed(b"\r20%", 4.0)
    assert reader.overdue(REDRAW_WINDOW) == ["20%"]
    assert reader.feed(b"\r30%\n", 6.0) == ["30%"]


def test_half_a_character_is_not_torn_by_waiting() -> None:
    reader = LineReader()
    reader.feed(b"caf\xc3", 0.0)
    assert reader.overdue(PARTIAL_WINDOW) == ["caf"]
    assert reader.feed(b"\xa9\n", 1.0) == ["é"]


@pytest.mark.parametrize("piece", [1000, MAX_LINE, 2**20])
def test_a_line_without_an_end_is_broken_and_complete(piece: int) -> None:
    data = bytes(itertools.islice(itertools.cycle(b"0123456789abcdefghi"), 5 * MAX_LINE + 17))
    lines = read([data[at : at + piece] for at in range(0, len(data), piece)])
    assert "".join(lines).encode() == data
    assert max(map(len, lines)) <= MAX_LINE
    assert len(lines) < 10
