import itertools
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.events import Shown
from notebook_accel.launch.show.output import (
    DISPLAY_WINDOW,
    MAX_LINE,
    MERGE_WINDOW,
    PARTIAL_WINDOW,
    REDRAW_WINDOW,
    LineMerger,
    LineReader,
    Output,
)
from notebook_accel.rank_spans import spans

Merged = list[tuple[str, str, list[int]]]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([2, 0, 1, 5], "0-2,5"),
        (range(8), "0-7"),
        ([0, 2, 4], "0,2,4"),
        ({9, 10, 11, 99}, "9-11,99"),
    ],
)
def test_spans_are_short(ranks: Sequence[int], text: str) -> None:
    assert spans(ranks) == text


# One rank's bytes


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


# Several ranks' lines

RANKS = 3
steps = st.lists(
    st.tuples(
        st.integers(0, RANKS - 1),
        st.sampled_from(["stdout", "stderr"]),
        st.lists(st.sampled_from("abc"), max_size=3),
        st.sampled_from([0.0, MERGE_WINDOW / 3, MERGE_WINDOW]),
        st.booleans(),
    ),
    max_size=25,
)


@given(steps, st.lists(st.integers(0, RANKS - 1), unique=True))
def test_no_line_is_lost_or_invented_and_none_overtakes(
    written: list[tuple[int, str, list[str], float, bool]], ended: list[int]
) -> None:
    merger, now = LineMerger(range(RANKS)), 0.0
    shown: Merged = []
    for rank, stream, lines, pause, look in written:
        merger.add(rank, stream, lines, now)
        now += pause
        if look:
            shown += merger.due(now)
            assert merger.next_due is None or merger.next_due > now
    for rank in ended:
        merger.end(rank)
    shown += merger.due(now, all_of_it=True)
    for rank in range(RANKS):
        said = [(stream, line) for who, stream, lines, _, _ in written if who == rank for line in lines]
        assert [(stream, text) for stream, text, ranks in shown if rank in ranks] == said
    assert all(ranks == sorted(set(ranks)) for _, _, ranks in shown)


def test_equal_lines_are_shown_once() -> None:
    merger = LineMerger([0, 1])
    merger.add(0, "stdout", ["epoch 1", "epoch 2"], 0.0)
    merger.add(1, "stdout", ["epoch 1", "epoch 2"], 0.05)
    assert merger.due(0.05) == [("stdout", "epoch 1", [0, 1]), ("stdout", "epoch 2", [0, 1])]


@pytest.mark.parametrize(
    "table",
    [
        ["+------+", "| loss |", "+------+", "| {} |", "+------+"],
        ["   loss  accuracy", "0  0.5  {}", "1  0.5  0.75"],
        ["      loss", "0      {}"],
        ["loss │ accuracy", "═════╪═════════", "0.5 │ {}"],
    ],
    ids=lambda table: table[0].strip(),
)
def test_tables_are_merged_as_a_whole_or_not_at_all(table: list[str]) -> None:
    merger = LineMerger(range(4))
    tables = [[line.format(value) for line in table] for value in (0, 1, 0, 1)]
    for rank, table in enumerate(tables):
        merger.add(rank, "stdout", table, 0.0)
    assert merger.due(1.0) == [
        *(("stdout", line, [0, 2]) for line in tables[0]),
        *(("stdout", line, [1, 3]) for line in tables[1]),
    ]


def test_equal_lines_before_different_ones_are_merged() -> None:
    merger = LineMerger([0, 1])
    for rank in (0, 1):
        merger.add(rank, "stdout", ["epoch 1", f"loss {rank}"], 0.0)
    assert merger.due(1.0) == [("stdout", "epoch 1", [0, 1]), ("stdout", "loss 0", [0]), ("stdout", "loss 1", [1])]


def test_equal_lines_are_merged_however_they_arrive() -> None:
    merger = LineMerger([0, 1, 2])
    a, b, c, d = "a  1", "b  2", "c  3", "d  4"
    merger.add(0, "stdout", [a, b, c], 0.0)
    for lines in ([a], [b, c]):
        merger.add(1, "stdout", lines, 0.0)
    for lines in ([a, b], [c, d]):
        merger.add(2, "stdout", lines, 0.0)
    assert merger.due(1.0) == [*(("stdout", line, [0, 1, 2]) for line in (a, b, c)), ("stdout", d, [2])]


def test_lines_of_different_streams_are_not_equal() -> None:
    merger = LineMerger([0, 1])
    merger.add(0, "stdout", ["x"], 0.0)
    merger.add(1, "stderr", ["x"], 0.0)
    assert merger.due(1.0) == [("stdout", "x", [0]), ("stderr", "x", [1])]


def test_a_line_that_another_rank_has_in_another_place_stays_there() -> None:
    merger = LineMerger([0, 1])
    merger.add(0, "stdout", ["a", "b"], 0.0)
    merger.add(1, "stdout", ["b", "a"], 0.0)
    assert merger.due(1.0) == [("stdout", "a", [0]), ("stdout", "b", [0, 1]), ("stdout", "a", [1])]


def test_a_line_waits_for_its_like_and_no_longer() -> None:
    merger = LineMerger([0, 1])
    merger.add(0, "stdout", ["x"], 0.0)
    assert merger.next_due == MERGE_WINDOW
    assert merger.due(0.9 * MERGE_WINDOW) == []
    assert merger.due(MERGE_WINDOW) == [("stdout", "x", [0])]
    merger.add(1, "stdout", ["x"], MERGE_WINDOW)
    assert merger.due(2 * MERGE_WINDOW) == [("stdout", "x", [1])]


def test_a_rank_alone_waits_for_nobody() -> None:
    merger = LineMerger([4])
    merger.add(4, "stdout", ["x", "x"], 0.0)
    assert merger.due(0.0) == [("stdout", "x", [4])] * 2


def test_nobody_waits_for_a_rank_that_has_ended() -> None:
    merger = LineMerger([0, 1, 2])
    merger.add(0, "stdout", ["x"], 0.0)
    merger.add(1, "stdout", ["x"], 0.0)
    assert merger.due(0.0) == []
    merger.end(2)
    assert merger.due(0.0) == [("stdout", "x", [0, 1])]


def test_a_flood_of_equal_lines_is_merged_in_time() -> None:
    merger, count = LineMerger([0, 1]), 15_000
    began = time.thread_time()  # whatever else the machine does
    merger.add(0, "stdout", ["loss: nan"] * count, 0.0)
    merger.add(1, "stdout", ["loss: nan"] * count, 0.0)
    assert Counter(ranks == [0, 1] for _, _, ranks in merger.due(0.0)) == {True: count}
    assert time.thread_time() - began < 2.0


def test_a_flood_is_shown_before_its_time() -> None:
    merger = LineMerger([0, 1])
    merger.add(0, "stdout", [str(number) for number in range(50_000)], 0.0)
    shown = merger.due(0.0)
    assert [text for _, text, _ in shown] == [str(number) for number in range(len(shown))]
    assert len(shown) >= 20_000


def test_long_lines_are_shown_before_they_take_much_memory() -> None:
    merger, line = LineMerger([0, 1]), "x" * MAX_LINE
    for number in range(200):
        merger.add(0, "stdout", [f"{number} {line}"], 0.0)
    assert len(merger.due(0.0)) >= 130  # 64 of them are 4 MiB
    assert len(merger.due(0.0, all_of_it=True)) >= 60


# All of it


class Screen:
    """Keeps what is written and displayed."""

    updates_displays = True

    def __init__(self) -> None:
        self.writes: list[tuple[str, str]] = []

    def write(self, stream: str, text: str) -> None:
        self.writes.append((stream, text))

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        del metadata, display_id, update
        self.writes.append(("display", data["text/plain"]))


def labeled(ranks: int | str) -> str:
    return f"[{ranks}] "


def test_lines_are_labeled_with_their_ranks() -> None:
    screen = Screen()
    output = Output(range(3), labeled, screen)
    for rank in range(3):
        assert output.feed(rank, "stdout", b"same\n", 0.0) == ["same"]
    output.feed(2, "stdout", b"alone\n", 0.0)
    output.show(0.0)
    assert screen.writes == [("stdout", "[0-2] same\n")]
    output.show(MERGE_WINDOW)
    assert screen.writes[1:] == [("stdout", "[2] alone\n")]


def test_runs_of_one_stream_are_written_at_once() -> None:
    screen = Screen()
    output = Output([0], lambda _: "", screen)
    for stream, text in [("stdout", b"1\n2\n"), ("stdout", b"3\n"), ("stderr", b"4\n"), ("stdout", b"5\n")]:
        output.feed(0, stream, text, 0.0)
    output.show(0.0)
    assert screen.writes == [("stdout", "1\n2\n3\n"), ("stderr", "4\n"), ("stdout", "5\n")]


def test_the_end_of_a_rank_shows_what_it_had_not_ended() -> None:
    screen = Screen()
    output = Output([0, 1], labeled, screen)
    output.feed(0, "stderr", b"why", 0.0)
    output.feed(0, "stdout", b"so\nfar", 0.0)
    assert output.end(0, 0.0) == ["far", "why"]
    output.show(MERGE_WINDOW)
    assert screen.writes == [("stdout", "[0] so\n[0] far\n"), ("stderr", "[0] why\n")]
    output.feed(1, "stdout", b"now alone\n", 1.0)
    output.show(1.0)
    assert screen.writes[-1] == ("stdout", "[1] now alone\n")


def test_a_line_that_does_not_end_is_shown_in_its_time() -> None:
    screen = Screen()
    output = Output([0], labeled, screen)
    output.feed(0, "stdout", b"loading", 0.0)
    for tenth in range(10):
        assert screen.writes == []
        output.show(tenth / 10 * PARTIAL_WINDOW)
    output.show(PARTIAL_WINDOW)
    assert screen.writes == [("stdout", "[0] loading\n")]


def test_a_line_waits_for_its_end_while_the_launch_is_busy_with_others() -> None:
    screen = Screen()
    output = Output([0], labeled, screen)
    output.show(0.0)
    output.feed(0, "stdout", b"who", 0.1)
    output.show(0.1 + 10 * PARTIAL_WINDOW)
    assert screen.writes == []
    output.feed(0, "stdout", b"le\n", 0.1 + 10 * PARTIAL_WINDOW)
    output.show(0.1 + 10 * PARTIAL_WINDOW)
    assert screen.writes == [("stdout", "[0] whole\n")]


def test_nothing_waits_at_the_end() -> None:
    screen = Screen()
    output = Output([0, 1], labeled, screen)
    output.feed(0, "stdout", b"x\n", 0.0)
    output.show(0.0, all_of_it=True)
    assert screen.writes == [("stdout", "[0] x\n")]
    output.show(0.0, all_of_it=True)
    assert len(screen.writes) == 1


# What is displayed between lines


def shown(text: str = "", *, alone: bool = False) -> Shown:
    bundle = [json.dumps({"data": {"text/plain": text}, "metadata": {}}).encode()] if text else []
    return Shown(alone=alone, bundle=bundle)


@pytest.mark.parametrize("drawn", ["once", "after each"])
@pytest.mark.parametrize("order", sorted(set(itertools.permutations([0, 0, 0, 1, 1, 1]))), ids=str)
def test_equal_lines_around_something_else_are_merged_whichever_rank_comes_first(
    order: tuple[int, ...], drawn: str
) -> None:
    screen = Screen()
    output = Output([0, 1], labeled, screen)
    steps = {rank: iter(("a", None, "c")) for rank in (0, 1)}
    for rank in order:
        step = next(steps[rank])
        if step is None:
            output.display(rank, shown("figure", alone=True) if rank == 0 else shown(), 0.0)
        else:
            output.feed(rank, "stdout", f"{step}\n".encode(), 0.0)
        if drawn == "after each":
            output.show(0.0)
    output.show(0.0)
    assert screen.writes == [("stdout", "[0-1] a\n"), ("display", "figure"), ("stdout", "[0-1] c\n")]


def test_what_one_rank_alone_shows_waits_for_nobody() -> None:
    screen = Screen()
    output = Output([0, 1, 2], labeled, screen)
    output.display(1, shown(), 0.0)
    output.show(0.0)
    assert output.next_due == DISPLAY_WINDOW
    output.display(0, shown("figure", alone=True), 0.01)
    output.show(0.01)
    assert screen.writes == [("display", "figure")]
    assert output.next_due is None
    output.display(0, shown("another", alone=True), 0.02)
    output.show(0.02)
    assert screen.writes[1:] == [("display", "another")]


def test_displays_are_in_the_order_of_the_ranks_however_they_come() -> None:
    screen = Screen()
    output = Output(range(3), labeled, screen)
    for rank in (2, 0):
        output.display(rank, shown(f"figure {rank}"), 0.0)
        output.show(0.0)
    assert screen.writes == []
    output.display(1, shown("figure 0"), 0.1)
    output.show(0.1)
    assert screen.writes == [
        *(("display", text) for text in ("[0-1]", "figure 0", "[2]", "figure 2")),
    ]


def test_a_display_waits_for_others_no_longer_than_its_time() -> None:
    screen = Screen()
    output = Output([0, 1], labeled, screen)
    output.display(1, shown("figure"), 0.0)
    output.show(0.9 * DISPLAY_WINDOW)
    assert screen.writes == []
    output.show(DISPLAY_WINDOW)
    assert [text for _, text in screen.writes] == ["[1]", "figure"]
    output.display(1, shown("next"), DISPLAY_WINDOW)  # nor does it wait again for one that has not come
    output.show(DISPLAY_WINDOW)
    assert [text for _, text in screen.writes] == ["[1]", "figure", "[1]", "next"]
    output.display(0, shown("figure"), DISPLAY_WINDOW)
    output.show(2 * DISPLAY_WINDOW)
    assert [text for _, text in screen.writes[4:]] == ["[0-1]"], "the label of the figure"
