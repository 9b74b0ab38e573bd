"""Prompts the user for the ranks that wait in `input()`, in `getpass()`, or in a debugger, one rank after the other.

A console may prompt on a thread of its own, as a notebook does, so that the call continues and its view is drawn. A
terminal prompts on the thread that runs the call, which now and then does the most urgent in the meantime.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from notebook_accel.events import InputRequested
from notebook_accel.launch.driver.stop_policy import StopReason, StopRequests
from notebook_accel.launch.show import console
from notebook_accel.launch.wire.event_loop import Calls, EventLoop


@dataclass(eq=False)
class _Prompt:
    """A rank's request."""

    rank: int
    request: InputRequested
    withdraw: Callable[[], object] = lambda: None


class Prompts:
    """The requests for input during one call. The thread that runs the call calls all methods.

    Args:
        loop: The event loop of the call.
        calls: Takes the answers to that loop.
        requests: Gets an interrupt during a prompt as a request to stop.
        on_answer: Called with a rank and its answer, which is `None` where there is no input.
        continue_call: Continues the call for a moment, without showing anything.
    """

    def __init__(
        self,
        loop: EventLoop,
        calls: Calls,
        requests: StopRequests,
        on_answer: Callable[[int, str | None], object],
        continue_call: Callable[[], object],
    ) -> None:
        self._continue_call = continue_call
        self._loop = loop
        self._calls = calls
        self._requests = requests
        self._on_answer = on_answer
        self._waiting: deque[_Prompt] = deque()
        self._current: _Prompt | None = None
        """The one that the user sees."""
        self._counted_at = 0.0
        """Until when the time of the current one is counted in `_held`."""
        self._held = 0.0

    def add(self, rank: int, request: InputRequested) -> None:
        """Prompts for a rank, as soon as the prompts before it are answered."""
        self._waiting.append(_Prompt(rank, request))

    def drop(self, rank: int) -> None:
        """Withdraws the prompts of a rank that no longer waits for the answer."""
        self._waiting = deque(prompt for prompt in self._waiting if prompt.rank != rank)
        if self._current is not None and self._current.rank == rank:
            self._withdraw_current()

    def refuse(self) -> None:
        """Withdraws all prompts, and answers that there is no input."""
        refused = [*([] if self._current is None else [self._current]), *self._waiting]
        self._waiting.clear()
        self._withdraw_current()
        for prompt in refused:
            self._on_answer(prompt.rank, None)

    def held_seconds(self, now: float) -> float:
        """Seconds since the last call of this method for which the user was prompted."""
        self._count(now)
        held, self._held = self._held, 0.0
        return held

    def close(self) -> None:
        """The call is over."""
        self._waiting.clear()
        self._withdraw_current()

    def open_next(self) -> None:
        """Shows the next prompt if there is one, and none is shown."""
        if self._current is not None or not self._waiting:
            return
        prompt = self._current = self._waiting.popleft()
        self._counted_at = time.monotonic()
        try:
            prompt.withdraw = console.current.open_prompt(
                prompt.request, partial(self._take_answer, prompt), partial(self._is_wanted, prompt)
            )
        except KeyboardInterrupt:
            self._requests.submit(StopReason.INTERRUPT)
            self._take_answer(prompt, None)

    def _is_wanted(self, prompt: _Prompt) -> bool:
        """Continues the call for a moment; returns whether the answer to this prompt is still waited for."""
        self._continue_call()
        return prompt is self._current

    def _take_answer(self, prompt: _Prompt, answer: str | None) -> None:
        """Called on any thread."""
        self._calls.add(partial(self._pass_on, prompt, answer))

    def _pass_on(self, prompt: _Prompt, answer: str | None) -> None:
        if prompt is not self._current:
            return  # it was withdrawn in the moment of its answer
        self._end_current()
        self._on_answer(prompt.rank, answer)
        self._loop.unthrottle()  # a user waits for what the rank does with it

    def _withdraw_current(self) -> None:
        if self._current is not None:
            self._current.withdraw()
            self._end_current()

    def _end_current(self) -> None:
        self._count(time.monotonic())
        self._current = None

    def _count(self, now: float) -> None:
        if self._current is not None:
            self._held += now - self._counted_at
            self._counted_at = now
