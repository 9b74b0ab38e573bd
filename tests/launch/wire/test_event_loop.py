import contextlib
import itertools
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from notebook_accel.launch.wire.event_loop import Calls, EventLoop, Wakeup


class Source:
    """A socket that something comes from; counts how often it was read."""

    def __init__(self, *, can_wait: bool = True) -> None:
        self.near, self.far = socket.socketpair()
        self.can_wait = can_wait
        self.times = 0

    def fileno(self) -> int:
        return self.near.fileno()

    def write(self) -> None:
        self.far.send(b"x")

    def read(self) -> bool:
        self.near.recv(100)
        self.times += 1
        return self.can_wait


@pytest.fixture
def sources() -> Iterator[list[Source]]:
    with contextlib.ExitStack() as stack:
        made = [Source() for _ in range(3)]
        for source in made:
            stack.callback(source.near.close)
            stack.callback(source.far.close)
        yield made


@pytest.fixture
def loop(sources: list[Source]) -> EventLoop:
    """The first source is not throttled; the others are read once an hour."""
    found = EventLoop(throttle=3600.0, max_throttle=3600.0, unthrottled=0.0)
    found.register(sources[0], sources[0].read)
    for source in sources[1:]:
        found.register_throttled(source, source.read)
    return found


def test_the_patient_are_heard_together_and_then_wait(loop: EventLoop, sources: list[Source]) -> None:
    for _ in range(2):
        for source in sources[1:]:
            source.write()
        loop.run_once(0.01)
    assert [source.times for source in sources] == [0, 1, 1]


def test_the_urgent_are_heard_while_the_patient_wait(loop: EventLoop, sources: list[Source]) -> None:
    sources[1].write()
    loop.run_once(0.01)
    sources[0].write()
    loop.run_once(3600.0)
    assert sources[0].times == 1


def test_whoever_cannot_wait_is_heard_at_once_the_next_time(loop: EventLoop, sources: list[Source]) -> None:
    sources[1].can_wait = False
    for _ in range(2):
        sources[1].write()
        sources[2].write()
        loop.run_once(3600.0)
    assert sources[1].times == sources[2].times == 2


def test_all_are_heard_at_once_in_the_beginning(sources: list[Source]) -> None:
    beginning = EventLoop(throttle=3600.0, max_throttle=3600.0, unthrottled=3600.0)
    beginning.register_throttled(sources[1], sources[1].read)
    for _ in range(2):
        sources[1].write()
        beginning.run_once(3600.0)
    assert sources[1].times == 2


def test_who_is_forgotten_is_heard_no_more(loop: EventLoop, sources: list[Source]) -> None:
    for source in (*sources, sources[0]):  # the second time there is nothing to forget
        loop.unregister(source)
        source.write()
    loop.run_once(0.0)
    assert not any(source.times for source in sources)


def test_timers_are_called_once_in_their_order(loop: EventLoop) -> None:
    called: list[str] = []
    loop.call_later(0.02, lambda: called.append("later"))
    loop.call_later(0.0, lambda: called.append("first"))
    assert loop.run_once(0.0)
    assert called == ["first"]
    while len(called) < 2:
        loop.run_once(3600.0)
    assert called == ["first", "later"]
    assert not loop.run_once(0.0)


def test_a_timer_may_set_another(loop: EventLoop) -> None:
    called: list[str] = []
    loop.call_later(0.0, lambda: loop.call_later(0.0, lambda: called.append("second")))
    loop.run_once(3600.0)
    assert not called
    loop.run_once(3600.0)
    assert called == ["second"]


def test_all_are_heard_at_once_when_a_call_begins(sources: list[Source]) -> None:
    loop = EventLoop(throttle=3600.0, max_throttle=3600.0, unthrottled=0.0)
    loop.register_throttled(sources[1], sources[1].read)
    for _ in range(2):
        sources[1].write()
        loop.run_once(0.01)
    assert sources[1].times == 1
    loop.unthrottle()
    loop.run_once(3600.0)
    assert sources[1].times == 2


def test_a_source_that_carries_many_ranks_counts_as_so_many(sources: list[Source]) -> None:
    loop = EventLoop(throttle=1.0, max_throttle=3600.0, unthrottled=0.0)
    loop.register_throttled(sources[1], sources[1].read, ranks=3600)
    for _ in range(2):
        sources[1].write()
        loop.run_once(1.5)
    assert sources[1].times == 1


def is_readable(source: Wakeup | int) -> bool:
    return bool(select.select([source], [], [], 0)[0])


def test_a_wakeup_is_readable_until_it_is_cleared() -> None:
    wakeup = Wakeup()
    assert not is_readable(wakeup)
    for _ in range(1_000):  # more than it holds
        wakeup.wake()
    assert is_readable(wakeup)
    wakeup.clear()
    assert not is_readable(wakeup)
    wakeup.close()


def test_a_wakeup_that_comes_after_the_end_goes_to_no_other_file() -> None:
    wakeup = Wakeup()
    first = wakeup.fileno()
    wakeup.close()
    pipes = [os.pipe() for _ in range(8)]
    assert any(first in ends for ends in pipes)
    wakeup.wake()
    assert not any(is_readable(reading) for reading, _ in pipes)
    for number in itertools.chain(*pipes):
        os.close(number)


def test_what_other_threads_and_signal_handlers_ask_for_is_called_in_the_loop_in_order() -> None:
    loop, called = EventLoop(), list[tuple[int, int]]()
    calls = Calls(loop)

    def ask(number: int) -> None:
        calls.add(lambda: called.append((number, threading.get_ident())))

    before = signal.signal(signal.SIGUSR1, lambda *_: ask(1))
    try:
        thread = threading.Thread(target=ask, args=(0,))
        thread.start()
        thread.join()
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not called
    loop.run_once(5)
    assert called == [(0, threading.get_ident()), (1, threading.get_ident())]
    calls.close()
    ask(2)
    assert not loop.run_once(0)
    assert len(called) == 2
