"""The channel thread: the same for a rank that runs calls and for one that runs a script."""

from __future__ import annotations

import os
import queue
import resource
import threading
from collections.abc import Iterator

import pytest

from notebook_accel import events, report
from notebook_accel.events import (
    CheckpointSaved,
    Event,
    Exited,
    Failed,
    Heartbeat,
    Hello,
    InputRequested,
    Interrupt,
    MemoryPeaks,
    Phase,
    PhaseChanged,
    Raised,
    Returned,
    Sampled,
    SamplesRequested,
    Stacks,
    StacksRequested,
    from_wire,
    to_wire,
)
from notebook_accel.launch.rank.channel_thread import ChannelThread
from notebook_accel.launch.rank.rank import Rank
from notebook_accel.launch.wire import stream
from notebook_accel.launch.wire.stream import Channel, pair

NEVER = 3600.0


class Other:
    """The other end of a rank's channel, with what the rank's own end is handed."""

    def __init__(self) -> None:
        sockets = pair()
        sockets[0].settimeout(20)  # for what never comes, should the thread have failed
        own, remote = map(Channel, sockets)
        self.channel = own
        self.handed: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        """The requests that the thread does not answer itself; `None` for each time that it says that none follows."""
        self.thread = ChannelThread(
            remote,
            heartbeat=NEVER,
            pace=NEVER,
            on_message=lambda request, message: self.handed.put(request),
            on_close=lambda: self.handed.put(None),
        )

    def received(self, count: int) -> list[Event]:
        """The next events: so many, and those that have come with the last."""
        found: list[Event] = []
        while len(found) < count:
            messages = self.channel.receive(wait=True)
            assert messages is not None
            found += [from_wire(message.header, message.blobs) for message in messages]
        return found

    def received_until(self, last: type[Event]) -> list[Event]:
        """The next events, without samples of the memory, up to the first of this class; what comes with it is left."""
        found: list[Event] = []
        while True:
            for event in self.received(1):
                if not isinstance(event, (Heartbeat, MemoryPeaks)):
                    found.append(event)
                if isinstance(event, last):
                    return found

    def kinds(self, count: int) -> list[str]:
        return [event.kind for event in self.received(count)]


@pytest.fixture
def other() -> Iterator[Other]:
    made = Other()
    yield made
    made.channel.close()
    made.thread.close()


@pytest.fixture
def started(other: Other) -> Iterator[Other]:
    other.thread.emit(PhaseChanged(Phase.RUNNING))
    other.thread.start()
    assert other.kinds(1) == ["phase"]  # with what was there first: nothing else is due from here on
    yield other
    other.thread.finish()


@pytest.mark.parametrize(
    "event",
    [Returned(), Failed([Raised("ValueError", "ValueError", [])], 0.0), Exited(code=3), InputRequested("", "> ")],
    ids=lambda event: event.kind,
)
def test_the_progress_so_far_is_sent_before_the_end_and_before_a_question(started: Other, event: Event) -> None:
    report(loss=0.5)
    for each in (event, PhaseChanged(Phase.RUNNING)):
        events.emit(each)
    found: list[str] = []
    while event.kind not in found:  # on a busy machine, samples of the memory may come first
        found += [each.kind for each in started.received(1) if not isinstance(each, (Heartbeat, MemoryPeaks))]
    assert found[:2] == ["reports", event.kind]


def test_what_must_arrive_has_been_sent_with_the_progress_so_far(started: Other) -> None:
    report(loss=0.5)
    events.emit_now(CheckpointSaved(3))
    sent = started.channel.receive(wait=False) or []
    kinds = [from_wire(message.header, message.blobs).kind for message in sent]
    assert sorted(kinds) == ["checkpoint saved", "reports"], "nothing is on its way any longer"


def test_all_that_was_emitted_is_sent_before_the_thread_ends(other: Other) -> None:
    other.thread.start()
    for number in range(100):
        events.emit(PhaseChanged(Phase.RUNNING, str(number)))
    other.thread.finish()
    sent = other.received(100)
    assert [event.detail for event in sent if isinstance(event, PhaseChanged)] == [str(each) for each in range(100)]
    assert not events.has_sink()


@pytest.mark.parametrize(("at_once", "kinds"), [(True, ["phase", "returned"]), (False, ["returned"])])
def test_the_phases_of_a_short_call_are_left_out(other: Other, at_once: bool, kinds: list[str]) -> None:
    other.thread.emit(PhaseChanged(Phase.RUNNING), at_once=at_once)
    other.thread.emit(Returned(), at_once=False)
    other.thread.flush()
    assert other.kinds(len(kinds)) == kinds


def test_it_answers_for_stacks_and_hands_on_what_else_is_requested(started: Other) -> None:
    for request in (StacksRequested(7), Interrupt()):
        started.channel.send(*to_wire(request))
    (answer,) = started.received(1)
    assert isinstance(answer, Stacks)
    assert answer.number == 7
    assert answer.threads[0].main
    assert started.handed.get() == Interrupt()
    started.channel.finish()
    assert started.handed.get() is None


def test_it_samples_for_as_long_as_requested(started: Other) -> None:
    started.channel.send(*to_wire(SamplesRequested(7, seconds=0.1, rate=200)))
    (answer,) = started.received_until(Sampled)
    assert isinstance(answer, Sampled)
    assert answer.number == 7
    assert 2 <= answer.samples <= 21
    assert 0.1 <= answer.seconds == pytest.approx(sum(answer.microseconds) / 1e6 + answer.idle, abs=1e-3)
    assert "received" in {frame.name for frame in answer.frames}
    started.thread.emit(PhaseChanged(Phase.DONE))
    assert started.kinds(1) == ["phase"]  # it has stopped to sample


def test_what_was_sampled_is_sent_before_the_end_of_the_call(started: Other) -> None:
    started.channel.send(*to_wire(SamplesRequested(7, seconds=NEVER, rate=200)))
    started.channel.send(*to_wire(Interrupt()))
    started.handed.get()  # so the request has been taken
    started.thread.emit(Returned())
    assert [event.kind for event in started.received_until(Returned)] == ["sampled", "returned"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("when", ["before the start", "after the start"])
def test_a_question_ends_and_the_script_goes_on_alone_when_the_other_end_is_gone(other: Other, when: str) -> None:
    if when == "before the start":
        other.channel.close()
    other.thread.emit(PhaseChanged(Phase.RUNNING))
    other.thread.start()
    other.channel.close()
    assert events.request_input("", "really? ") is None
    other.thread.finish()
    assert not events.has_sink()
    assert not other.thread.failed


@pytest.fixture
def many_files() -> Iterator[None]:
    """So many open files that the next descriptor is beyond what `select` takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    yield
    for fd in held:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_it_works_beyond_1024_open_files(many_files: None, started: Other) -> None:
    assert started.channel.fileno() > 1024
    started.channel.send(*to_wire(StacksRequested(7)))
    assert started.kinds(1) == ["stacks"]
    assert not stream.is_readable(started.channel, 0)
    started.thread.emit(PhaseChanged(Phase.DONE))
    assert stream.is_readable(started.channel, 20)


def test_the_end_of_the_other_side_is_handed_on_once(started: Other) -> None:
    started.channel.finish()
    assert started.handed.get(timeout=20) is None
    started.thread.emit(PhaseChanged(Phase.DONE))
    assert started.kinds(1) == ["phase"]
    started.thread.finish()
    assert started.handed.qsize() == 1  # for the end of the thread


def test_a_rank_whose_thread_cannot_start_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    own, remote = map(Channel, pair())
    rank = Rank(remote, NEVER, pace=NEVER, isolated=False)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    rank.serve()
    messages = own.receive(wait=True)
    assert messages is not None
    hello, failed = (from_wire(message.header, message.blobs) for message in messages)
    rank.close()
    own.close()
    assert rank.failed
    assert isinstance(hello, Hello)
    assert isinstance(failed, Failed)
    assert "Launch fewer ranks" in failed.chain[-1].text
