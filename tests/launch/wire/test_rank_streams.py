"""What a rank writes and displays, in the order in which it did."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel import events, rank_local
from notebook_accel.events import Event, Heartbeat, Returned, Shown, Written, to_wire
from notebook_accel.launch.wire import pipe_marks
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.rank_streams import PIPE_SIZE, RankStreams
from notebook_accel.launch.wire.stream import Channel, pair


class Rank:
    """Both ends of a rank's streams."""

    def __init__(self) -> None:
        self.order: list[str] = []
        """What has arrived: the text of what was written, and the kinds of events."""
        self._written: list[Event] = []
        self.loop = EventLoop(unthrottled=3600.0)
        near, far = pair()
        self.channel = Channel(far)
        reads, self.pipes = zip(os.pipe(), os.pipe(), strict=True)
        for fd in reads:
            os.set_blocking(fd, False)
        names = dict(zip(reads, ("stdout", "stderr"), strict=True))
        self.streams = RankStreams(self.loop, Channel(near), names, self._on_event, lambda: None)

    def _on_event(self, event: Event, fds: object) -> None:
        if not isinstance(event, Written):
            self.order.append(event.kind)
        elif self.order and self.order[-1].startswith(f"{event.stream}: "):
            self.order[-1] += b"".join(event.data).decode()
        else:
            self.order.append(f"{event.stream}: {b''.join(event.data).decode()}")

    def write(self, text: str, pipe: int = 0) -> None:
        os.write(self.pipes[pipe], text.encode())

    def display(self, then: Callable[[], object] = lambda: None) -> Event:
        """Displays something, so that its mark is in the pipes; returns the event, which is not sent."""
        made: list[Event] = []
        pipe_marks.emit(lambda mark: made.append(Shown(mark=mark)) or made[-1])
        return made[-1]

    def send(self, event: Event) -> None:
        self.channel.send(*to_wire(event))

    def read(self, until: Callable[[], bool] = lambda: False, seconds: float = 0.0) -> None:
        """Reads what has arrived, or until a condition holds."""
        deadline = time.monotonic() + seconds
        while not until() and (self.loop.run_once(max(0.0, min(0.1, deadline - time.monotonic()))) or seconds):
            assert not seconds or time.monotonic() < deadline, self.order

    def close(self) -> None:
        self.streams.close()
        self.channel.close()
        for fd in self.pipes:
            os.close(fd)


@pytest.fixture
def rank() -> Iterator[Rank]:
    made = Rank()
    pipe_marks.set_pipes(made.pipes)
    yield made
    rank_local.space().pop(f"{pipe_marks.__name__}.pipes")
    made.close()


@pytest.mark.parametrize("sent", ["before it is read", "after it was read"])
def test_what_is_displayed_keeps_its_place_among_the_lines(rank: Rank, sent: str) -> None:
    rank.write("a\n")
    event = rank.display()
    rank.write("b\n")
    if sent == "after it was read":
        rank.read()
        assert rank.order == ["stdout: a\n"]
    rank.send(event)
    rank.read()
    assert rank.order == ["stdout: a\n", "shown", "stdout: b\n"]


def test_several_displays_keep_their_places_in_both_streams(rank: Rank) -> None:
    for step in range(3):
        rank.write(f"out {step}\n")
        rank.write(f"err {step}\n", 1)
        rank.send(rank.display())
    rank.write("end\n")
    rank.read()
    kinds = [each for each in rank.order if each == "shown"]
    assert len(kinds) == 3
    for step in range(3):
        before = rank.order[: [at for at, each in enumerate(rank.order) if each == "shown"][step]]
        assert f"out {step}\n" in "".join(before)
        assert f"err {step}\n" in "".join(before)
        assert f"out {step + 1}" not in "".join(before)
    assert rank.order[-1] == "stdout: end\n"


def test_a_display_that_was_interrupted_holds_nothing_back(rank: Rank) -> None:
    rank.display()  # of which no event comes
    rank.write("after the interrupt\n")
    rank.send(rank.display())
    rank.read()
    assert rank.order == ["stdout: after the interrupt\n", "shown"]


def test_the_lines_after_a_display_that_never_comes_wait_no_longer_than_a_moment(rank: Rank) -> None:
    rank.display()
    rank.write("after\n")
    rank.read(lambda: bool(rank.order), seconds=10)
    assert rank.order == ["stdout: after\n"]


def test_the_end_of_a_call_comes_after_all_that_the_rank_wrote(rank: Rank) -> None:
    rank.display()
    rank.write("after\n")
    rank.send(Returned())
    rank.read(lambda: "returned" in rank.order, seconds=10)
    assert rank.order == ["stdout: after\n", "returned"]


def test_what_a_rank_that_has_exited_wrote_is_read_in_order(rank: Rank) -> None:
    rank.write("a\n")
    event = rank.display()
    rank.write("b\n")
    rank.send(event)
    rank.streams.read_rest()
    assert rank.order == ["stdout: a\n", "shown", "stdout: b\n"]


def test_what_a_rank_writes_without_end_leaves_a_turn_to_requests(rank: Rank) -> None:
    fcntl.fcntl(rank.pipes[0], fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    rank.write("x" * PIPE_SIZE)
    turns: list[int] = []
    near, far = pair()
    rank.loop.register(near, lambda: turns.append(sum(map(len, rank.order))))
    far.send(b".")
    rank.loop.run_once(0.0)
    assert len(turns) == 1
    assert 0 < turns[0] <= PIPE_SIZE // 16 + len("stdout: ")
    rank.loop.unregister(near)
    near.close()
    far.close()


def test_other_events_do_not_wait_for_the_output(rank: Rank) -> None:
    event = rank.display()
    rank.write("b\n")
    rank.send(Heartbeat(1))
    rank.read(lambda: bool(rank.order), seconds=10)
    rank.send(event)
    rank.read(lambda: len(rank.order) == 3, seconds=10)
    assert rank.order == ["heartbeat", "shown", "stdout: b\n"]


def test_a_rank_whose_output_is_not_read_needs_no_mark() -> None:
    made: list[Event] = []
    events.set_sink(made.append)
    try:
        pipe_marks.emit(lambda mark: Shown(mark=mark))
    finally:
        events.set_sink(None)
    assert made == [Shown(mark=0)]


text = st.binary(max_size=6) | st.just(b"\x00") | st.just(b"\x00\x1bnote") | st.just(b"\x00\x1bnotebook-accel x")


@given(st.lists(st.tuples(text, st.booleans()), max_size=6), st.lists(st.integers(1, 9), max_size=30))
def test_marks_are_found_however_they_are_torn(parts: list[tuple[bytes, bool]], cuts: list[int]) -> None:
    mark = b"\x00\x1bnotebook-accel 7\x00"
    data = b"".join(piece + mark * marked for piece, marked in parts)
    held, found, count = b"", b"", 0
    pieces = iter(cuts)
    while data:
        size = next(pieces, len(data))
        held, data = held + data[:size], data[size:]
        number: int | None = 0
        while number is not None:
            before, number, held = pipe_marks.split(held)
            found += before
            count += number == 7
    assert found + held == b"".join(piece for piece, _ in parts)
    assert count == sum(marked for _, marked in parts)
