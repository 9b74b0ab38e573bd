"""Profiles that begin and end with training steps, with torch's own profiler and optimizers."""

from __future__ import annotations

import gzip
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim import optimizer as torch_optimizer

from notebook_accel import rank_local
from notebook_accel.events import Event, Profiled, ProfileRequested
from notebook_accel.events.emit import STEP_CONTROL
from notebook_accel.launch.rank.step_profiles import StepProfiles
from notebook_accel.launch.wire.constants import STEP_MARK

NEVER = 3600.0


class Rank:
    """The profiles of this thread, what they send, and two optimizers to step."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.profiles = StepProfiles(threading.get_ident(), self.sent.append)
        self.one, self.other = (SGD([nn.Parameter(torch.ones(3))], 0.1) for _ in range(2))

    def request(self, steps: int, number: int = 1, most_bytes: int = 2**25) -> None:
        self.profiles.begin(ProfileRequested(number, steps, 10.0, most_bytes), 0.0)

    def step(self, count: int = 1, optimizer: Optimizer | None = None) -> None:
        for _ in range(count):
            torch.ones(3).cumsum(0)
            (optimizer or self.one).step()

    def replies(self) -> list[Profiled]:
        """All that was sent, once the traces are written."""
        self.profiles.on_call_end()
        return [each for each in self.sent if isinstance(each, Profiled)]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    """Its hook is registered only while the test runs."""
    monkeypatch.setattr(torch_optimizer, "_global_optimizer_post_hooks", OrderedDict())
    made = Rank()
    yield made
    made.profiles.on_call_end()
    assert not torch.autograd._profiler_enabled()


def names(reply: Profiled) -> list[str]:
    return [event["name"] for event in json.loads(gzip.decompress(reply.trace[0]))["traceEvents"]]


def test_a_profile_begins_with_the_next_step_and_has_as_many_as_requested(rank: Rank) -> None:
    torch.ones(3).cumprod(0)
    rank.request(3)
    torch.ones(3).cumprod(0)
    rank.step(4)
    assert not rank.profiles.is_active
    rank.step(2)
    (reply,) = rank.replies()
    assert (reply.number, reply.error, reply.note, len(reply.boundaries)) == (1, "", "", 4)
    assert sorted(reply.boundaries) == reply.boundaries
    found = names(reply)
    assert found.count("aten::cumsum") == 3
    assert found.count(STEP_MARK) == 4
    assert "aten::cumprod" not in found


def test_the_next_request_may_come_as_soon_as_the_reply_is_sent(rank: Rank) -> None:
    requested = threading.Event()

    def send(event: Event) -> None:
        rank.sent.append(event)
        if len(rank.sent) == 1:
            rank.request(1, number=2)
            requested.set()

    rank.profiles = StepProfiles(threading.get_ident(), send)
    rank.request(1)
    rank.step(3)
    assert requested.wait(20)
    rank.step(3)
    assert [(reply.number, reply.error) for reply in rank.replies()] == [(1, ""), (2, "")]


def test_steps_are_counted_by_one_of_several_optimizers(rank: Rank) -> None:
    rank.request(2)
    for _ in range(3):
        rank.step(optimizer=rank.one)
        rank.step(optimizer=rank.other)
    (reply,) = rank.replies()
    assert names(reply).count("aten::cumsum") == 4
    rank.request(1)
    rank.step(optimizer=rank.one)
    rank.step(3, optimizer=rank.other)
    assert not rank.profiles.is_active, "the first one steps no more"


def test_a_hook_of_the_users_own_is_called_too_and_none_is_added_during_a_loop_over_them(rank: Rank) -> None:
    requested, own = [], []

    def request_once(*_: Any) -> None:
        if not requested:
            requested.append(1)
            rank.request(1)

    torch_optimizer.register_optimizer_step_post_hook(request_once)
    torch_optimizer.register_optimizer_step_post_hook(lambda *_: own.append(1))
    rank.step(3)
    assert len(own) == 3
    assert len(rank.replies()[0].boundaries) == 2


def test_another_thread_s_steps_do_not_count(rank: Rank) -> None:
    rank.request(1)
    thread = threading.Thread(target=rank.step, args=(3,))
    thread.start()
    thread.join()
    assert rank.sent == []
    assert rank.profiles.is_active
    assert rank.replies()[0].error == "its function ended before the next training step did"


def test_a_call_that_ends_leaves_the_whole_steps(rank: Rank) -> None:
    rank.request(5)
    rank.step(3)
    (reply,) = rank.replies()
    assert reply.note == "its function ended after 2 of 5 steps"
    rank.sent.clear()
    rank.request(5)
    rank.step()
    assert rank.replies()[0].error == "its function ended before a whole training step was recorded"


def test_a_second_request_is_refused_until_the_first_is_answered(rank: Rank) -> None:
    rank.request(1, number=1)
    rank.request(1, number=2)
    rank.step(2)
    refused, answered = rank.replies()
    assert (refused.number, refused.error) == (2, "it is being profiled already: wait until that profile is there")
    assert (answered.number, answered.error) == (1, "")
    rank.request(1, number=3)
    rank.step(2)
    assert rank.replies()[-1].number == 3


def test_no_request_waits_forever(rank: Rank) -> None:
    rank.request(2)
    rank.profiles.poll(9.9)
    assert rank.sent == []
    rank.profiles.poll(10.0)
    rank.step(3)
    assert [reply.error for reply in rank.replies()] == ["no training step ended within 10 s"]
    rank.sent.clear()
    rank.request(5)
    rank.step(3)
    for now in (10.0, 10.1):
        rank.profiles.poll(now)
    assert rank.profiles.is_active, "the profiler is stopped on this thread, with the next step"
    rank.step()
    assert not rank.profiles.is_active
    assert [reply.error for reply in rank.replies()] == ["only 2 of 5 steps ended within 10 s"]


def test_a_paused_training_has_no_steps_to_wait_for(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    control = SimpleNamespace(is_paused=True)
    monkeypatch.setitem(rank_local.space(), STEP_CONTROL, control)
    rank.request(2)
    control.is_paused = False
    rank.request(2)
    control.is_paused = True
    rank.profiles.poll(10.0)
    assert [(reply.error, reply.is_late) for reply in rank.replies()] == [
        ("it is paused; resume it to profile its steps", False)
    ] * 2


def test_a_profiler_of_the_user_s_own_comes_first(rank: Rank) -> None:
    other = "another profiler of torch is active there: wait until it has ended"
    with torch.profiler.profile() as profiler:
        rank.request(1)
        rank.step()
    assert [reply.error for reply in rank.replies()] == [other]
    assert any(event.name == "aten::cumsum" for event in profiler.events())
    rank.sent.clear()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1)
    with torch.profiler.profile(schedule=schedule) as profiler:
        rank.request(1)
        rank.step()  # it only warms up, and records nothing yet
        profiler.step()
        rank.step()
    assert [reply.error for reply in rank.replies()] == [other]
    assert any(event.name == "aten::cumsum" for event in profiler.events())


def test_one_that_begins_later_ends_ours(rank: Rank) -> None:
    rank.request(5)
    rank.step(3)
    with torch.profiler.profile() as profiler:
        torch.ones(3).cumprod(0)
    rank.step()
    (reply,) = rank.replies()
    assert reply.note == "its code started a profiler of its own after 2 of 5 steps"
    assert names(reply).count("aten::cumsum") == 2
    assert any(event.name == "aten::cumprod" for event in profiler.events())


def test_on_another_thread_it_gets_an_error_instead_of_a_crash(rank: Rank) -> None:
    rank.request(2)
    rank.step()
    errors = []

    def profile() -> None:
        try:
            torch.profiler.profile().start()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=profile)
    thread.start()
    thread.join()
    assert "job.profile() records the steps of another one" in errors[0]
    rank.step(2)
    assert len(rank.replies()[0].boundaries) == 3


def test_a_failure_of_the_profiler_is_reported_and_leaves_the_training_alone(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(torch.profiler.profile, "start", lambda self: 1 / 0)
        rank.request(1)
        rank.step(2)
    expected = ["torch's profiler failed there: ZeroDivisionError: division by zero"]
    assert [reply.error for reply in rank.replies()] == expected
    rank.sent.clear()
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda self, path: 1 / 0)
    rank.request(1)
    rank.step(2)
    assert [reply.error for reply in rank.replies()] == expected


def test_a_trace_is_written_where_the_system_refuses_a_thread_for_it(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        rank.request(1)
        rank.step(2)
        (reply,) = rank.replies()
    assert reply.error == ""
    assert names(reply).count("aten::cumsum") == 1


def test_a_long_trace_is_shortened_and_keeps_the_ends_of_the_steps(rank: Rank) -> None:
    rank.request(50, most_bytes=30_000)
    rank.step(51)
    (reply,) = rank.replies()
    assert "events are left out of the trace" in reply.note
    assert names(reply).count(STEP_MARK) == 51
