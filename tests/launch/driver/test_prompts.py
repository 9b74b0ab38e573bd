"""Prompts for ranks, with a console that the test answers for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from notebook_accel.events import InputRequested
from notebook_accel.launch.driver.prompts import Prompts
from notebook_accel.launch.driver.stop_policy import StopReason, StopRequests
from notebook_accel.launch.show import console
from notebook_accel.launch.wire.event_loop import Calls, EventLoop


class Notebook(console.Terminal):
    """Prompts, and takes the answer later."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.withdrawn: list[str] = []
        self.answer: Callable[[str | None], object] = lambda line: None

    def open_prompt(
        self,
        request: InputRequested,
        on_answer: Callable[[str | None], object],
        is_wanted: Callable[[], bool],
    ) -> Callable[[], object]:
        self.prompts.append(request.prompt)
        self.answer = on_answer
        return lambda: self.withdrawn.append(request.prompt)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    notebook = Notebook()
    monkeypatch.setattr(console, "current", notebook)
    return notebook


class Call:
    """The prompts of a call, and what they lead to."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.calls = Calls(self.loop)
        self.requests = StopRequests()
        self.answers: list[tuple[int, str | None]] = []
        self.prompts = Prompts(
            self.loop, self.calls, self.requests, lambda *answer: self.answers.append(answer), lambda: None
        )

    def ask(self, rank: int) -> None:
        self.prompts.add(rank, InputRequested("", f"{rank}? "))
        self.prompts.open_next()

    def drop(self, rank: int) -> None:
        self.prompts.drop(rank)
        self.prompts.open_next()

    def run(self) -> None:
        self.loop.run_once(5)
        self.prompts.open_next()


@pytest.fixture
def call() -> Iterator[Call]:
    found = Call()
    yield found
    found.prompts.close()
    found.calls.close()


def test_one_rank_is_asked_for_at_a_time(shown: Notebook, call: Call) -> None:
    for rank in range(3):
        call.ask(rank)
    assert shown.prompts == ["0? "]
    shown.answer("zero")
    call.run()
    assert call.answers == [(0, "zero")]
    call.drop(1)
    assert shown.prompts == ["0? ", "1? ", "2? "]
    assert shown.withdrawn == ["1? "]
    call.prompts.close()
    assert shown.withdrawn == ["1? ", "2? "]
    assert call.answers == [(0, "zero")]


def test_a_rank_that_has_not_been_asked_for_yet_is_not_any_more(shown: Notebook, call: Call) -> None:
    call.ask(0)
    call.ask(1)
    call.drop(1)
    shown.answer("zero")
    call.run()
    assert shown.prompts == ["0? "]


def test_all_are_refused(shown: Notebook, call: Call) -> None:
    call.ask(1)
    call.ask(0)
    call.prompts.refuse()
    assert call.answers == [(1, None), (0, None)]
    assert shown.prompts == shown.withdrawn == ["1? "]


def test_the_answer_to_a_prompt_that_was_withdrawn_is_not_taken_for_the_next(shown: Notebook, call: Call) -> None:
    call.ask(0)
    call.ask(1)
    shown.answer("late")
    call.drop(0)
    call.run()
    assert call.answers == []
    shown.answer("one")
    call.run()
    assert call.answers == [(1, "one")]


def test_the_time_of_a_prompt_is_counted_once(shown: Notebook, call: Call) -> None:
    assert call.prompts.held_seconds(time.monotonic()) == 0
    before = time.monotonic()
    call.ask(0)
    time.sleep(0.02)
    first = call.prompts.held_seconds(time.monotonic())
    shown.answer("zero")
    time.sleep(0.02)
    call.run()
    held = first + call.prompts.held_seconds(time.monotonic())
    assert 0.02 <= first < held
    assert 0.04 <= held <= time.monotonic() - before
    assert call.prompts.held_seconds(time.monotonic()) == 0


def test_an_interrupt_in_a_terminal_stops_the_call_and_refuses_the_prompt(
    monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    class Interrupted(console.Terminal):
        def request_input(self, request: InputRequested) -> str | None:
            raise KeyboardInterrupt

    monkeypatch.setattr(console, "current", Interrupted())
    call.ask(0)
    call.run()
    assert call.answers == [(0, None)]
    assert list(call.requests.received) == [StopReason.INTERRUPT]
