import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from notebook_accel.events import Shown
from notebook_accel.launch.show.line_merger import MERGE_WINDOW
from notebook_accel.launch.show.line_reader import PARTIAL_WINDOW
from notebook_accel.launch.show.output import DISPLAY_WINDOW, Output
from notebook_accel.rank_spans import spans


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
        output.feed(rank, "stdout", b"same\n", 0.0)
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
    output.end(0, 0.0)
    output.show(MERGE_WINDOW)
    assert screen.writes == [("stdout", "[0] so\n[0] far\n"), ("stderr", "[0] why\n")]
    output.feed(1, "stdout", b"now alone\n", 1.0)
    output.show(1.0)
    assert screen.writes[-1] == ("stdout", "[1] now alone\n")


def test_each_line_that_is_shown_is_also_passed_on_once() -> None:
    heard: list[tuple[int, str, list[str]]] = []
    screen = Screen()
    output = Output([0], labeled, screen)
    output.on_lines = lambda rank, stream, lines: heard.append((rank, stream, [*lines]))
    output.feed(0, "stdout", b"whole\nand ", 0.0)
    output.show(0.0)
    output.feed(0, "stderr", b"Name: ", 0.0)
    for tenth in range(11):
        output.show(tenth / 10 * PARTIAL_WINDOW)
    output.feed(0, "stdout", b"the rest", 1.0)
    output.end(0, 1.0)
    output.show(1.0)
    assert heard == [
        (0, "stdout", ["whole"]), (0, "stdout", ["and "]), (0, "stderr", ["Name: "]), (0, "stdout", ["the rest"])
    ]  # fmt: skip
    assert "".join(text for _, text in screen.writes) == "[0] whole\n[0] and \n[0] Name: \n[0] the rest\n"


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
def test_equal_lines_around_something_else_are_merged_whichever_rank_comes_first(drawn: str) -> None:
    for order in {*itertools.permutations([0, 0, 0, 1, 1, 1])}:
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
        written = [("stdout", "[0-1] a\n"), ("display", "figure"), ("stdout", "[0-1] c\n")]
        assert screen.writes == written, order


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
    assert screen.writes == [("display", "[0-1] figure 0"), ("display", "[2] figure 2")]


def test_a_display_waits_for_others_no_longer_than_its_time() -> None:
    screen = Screen()
    output = Output([0, 1], labeled, screen)
    output.display(1, shown("figure"), 0.0)
    output.show(0.9 * DISPLAY_WINDOW)
    assert screen.writes == []
    output.show(DISPLAY_WINDOW)
    assert [text for _, text in screen.writes] == ["[1] figure"]
    output.display(1, shown("next"), DISPLAY_WINDOW)  # nor does it wait again for one that has not come
    output.show(DISPLAY_WINDOW)
    assert [text for _, text in screen.writes] == ["[1] figure", "[1] next"]
    output.display(0, shown("figure"), DISPLAY_WINDOW)
    output.show(2 * DISPLAY_WINDOW)
    assert [text for _, text in screen.writes[2:]] == ["figure"], "without a label, since all have displayed it"
