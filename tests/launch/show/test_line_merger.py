import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.launch.show.line_merger import MERGE_WINDOW, LineMerger
from notebook_accel.launch.show.line_reader import MAX_LINE

Merged = list[tuple[str, str, list[int]]]


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
