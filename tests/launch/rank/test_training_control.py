"""Ranks, on threads, that a driver pauses, resumes and tunes; without sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from notebook_accel.events import (
    Control,
    Controlled,
    Event,
    Phase,
    PhaseChanged,
    ProfileRequested,
    StepPromised,
    StepRequested,
)
from notebook_accel.events.control import CHECKPOINT, PAUSE, RESUME, TUNE
from notebook_accel.launch.driver.rank_requests import AgreedSteps
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies
from notebook_accel.launch.rank.training_control import TrainingControl
from notebook_accel.train.steps.tunables import Tunable
from tests.live_notebook import wait_until

pytestmark = pytest.mark.smoke
OPTIMIZER = object()
PATIENCE = 20.0


class Training:
    """A rank that steps until it is stopped."""

    def __init__(self, pace: float, limit: float = 1e9) -> None:
        self.sent: list[Event] = []
        self.control = TrainingControl(self.sent.append, lambda: self.profiled_in.append(len(self.values) + 1))
        self.values: list[float] = []
        """That of the tunable, after each step."""
        self.profiled_in: list[int] = []
        """The steps at whose ends a profile began."""
        self.is_over = False
        self._pace = pace
        self._limit = limit
        self._thread = threading.Thread(target=self._train, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.is_over = True
        self._thread.join(PATIENCE)

    def _train(self) -> None:
        tunable = Tunable("lr", 1.0, None, None, None)
        self.control.add(tunable)
        self.control.attach("")
        while not self.is_over and len(self.values) < self._limit:
            time.sleep(self._pace)
            self.control.on_step(OPTIMIZER)
            self.values.append(tunable.value)
        self.control.on_call_end()

    def replies(self, number: int) -> list[Event]:
        return [each for each in self.sent if isinstance(each, (StepPromised, Controlled)) and each.number == number]


class Group:
    """A driver of these ranks."""

    def __init__(self, *ranks: Training) -> None:
        self.ranks = ranks
        self._number = 0
        self._agreed = AgreedSteps(self._ask, Job("train", 0, len(ranks)), 0)
        for rank in ranks:
            rank.start()
        wait_until(lambda: all(len(rank.values) > 2 for rank in ranks))

    def request(self, action: str, **values: float) -> dict[int, Any]:
        return self._request(Control(0, action, values))

    def profile(self) -> int:
        """The step that all of them profile from, or -1 if each profiles from its own."""
        (sent,) = self._request(ProfileRequested(0, 1, PATIENCE, 1)).values()
        return sent.step

    def _request(self, event: Event) -> dict[int, Any]:
        found: list[Replies] = []
        self._agreed.request(RankRequest(event, PATIENCE), found.append)
        self._agreed.poll()
        wait_until(lambda: bool(found))
        return dict(found[0])

    def _ask(self, request: RankRequest, then: Callable[[Replies], object]) -> None:
        self._number += 1
        number, event = self._number, request.event
        if isinstance(event, ProfileRequested):
            for rank in self.ranks if event.step >= 0 else ():
                rank.control.profile_after(event.step)
            then({0: event})
            return
        assert isinstance(event, (StepRequested, Control))
        for rank in self.ranks:
            ask: Any = rank.control.promise if isinstance(event, StepRequested) else rank.control.command
            ask(replace(event, number=number))
        wait_until(lambda: all(rank.replies(number) for rank in self.ranks))
        then({index: rank.replies(number)[0] for index, rank in enumerate(self.ranks)})


@pytest.fixture
def group() -> Iterator[Group]:
    """Ranks that are not at the same step, and of which one is slower."""
    made = Group(Training(0.001), Training(0.002), Training(0.0007))
    yield made
    for rank in made.ranks:
        rank.stop()


def steps(replies: dict[int, Any]) -> set[int]:
    return {reply.step for reply in replies.values()}


def test_ranks_pause_after_the_same_step_and_stay_there(group: Group) -> None:
    paused = group.request(PAUSE)
    assert len(steps(paused)) == 1
    done = [len(rank.values) for rank in group.ranks]
    assert set(done) == {next(iter(steps(paused))) - 1}  # they are within that step
    assert [each.error for each in group.request(PAUSE).values()] == ["it is paused already"] * 3
    assert done == [len(rank.values) for rank in group.ranks]
    assert not any(reply.error for reply in group.request(RESUME).values())
    wait_until(lambda: all(len(rank.values) > done[0] + 2 for rank in group.ranks))
    for rank in group.ranks:
        assert [each.phase for each in rank.sent if isinstance(each, PhaseChanged)] == [Phase.PAUSED, Phase.RUNNING]
        assert rank.control.paused_seconds > 0
    assert {each.error for each in group.request(RESUME).values()} == {"it is not paused"}


def test_the_second_of_two_requests_to_pause_after_a_step_is_refused() -> None:
    training = Training(0)
    training.control.attach("")
    for number in (1, 2):  # before it trains, so that the first one can't be done before the second comes
        training.control.promise(StepRequested(number, PAUSE))
    for number in (3, 4):
        training.control.command(Control(number, PAUSE, step=1))
    training.start()
    wait_until(lambda: bool(training.replies(4)))
    errors = [each.error for number in (3, 4) for each in training.replies(number) if isinstance(each, Controlled)]
    assert errors == ["", "it is paused already"]
    training.control.command(Control(5, RESUME))
    wait_until(lambda: len(training.values) > 2)
    training.stop()
    phases = [each.phase for each in training.sent if isinstance(each, PhaseChanged)]
    assert phases == [Phase.PAUSED, Phase.RUNNING]


def test_a_value_changes_after_the_same_step_everywhere_also_during_a_pause(group: Group) -> None:
    (first,) = steps(group.request(TUNE, lr=2.0))
    (pause,) = steps(group.request(PAUSE))
    assert steps(group.request(TUNE, lr=3.0)) == {pause}
    group.request(RESUME)
    wait_until(lambda: all(len(rank.values) > pause for rank in group.ranks))
    for rank in group.ranks:
        expected = [1.0] * (first - 1) + [2.0] * (pause - first) + [3.0] * 2
        assert rank.values[: pause + 1] == expected


def test_a_request_that_one_rank_refuses_holds_none(group: Group) -> None:
    assert {each.error for each in group.request(CHECKPOINT).values()} == {
        "it isn't in a loop over accelerator.epochs()"
    }
    assert {each.error for each in group.request(TUNE, rate=1).values()} == {
        "it has no tunable value 'rate'; it has lr"
    }
    group.ranks[1].control.attach("of this")
    assert {rank: each.error for rank, each in group.request(PAUSE).items()} == {1: "of this"}
    done = [len(rank.values) for rank in group.ranks]
    wait_until(lambda: all(len(rank.values) > before + 2 for rank, before in zip(group.ranks, done, strict=True)))


def test_all_ranks_profile_from_the_same_step_on(group: Group) -> None:
    step = group.profile()
    wait_until(lambda: all(rank.profiled_in for rank in group.ranks))
    assert [rank.profiled_in for rank in group.ranks] == [[step]] * 3
    wait_until(lambda: all(len(rank.values) > step + 2 for rank in group.ranks))


def test_each_rank_profiles_from_its_own_step_on_if_one_counts_none(group: Group) -> None:
    group.ranks[1].control.attach("of this")
    assert group.profile() == -1
    done = [len(rank.values) for rank in group.ranks]
    wait_until(lambda: all(len(rank.values) > before + 2 for rank, before in zip(group.ranks, done, strict=True)))


def test_a_profile_that_a_function_ends_before_is_left_to_the_profiler() -> None:
    training = Training(0, limit=3)
    training.control.attach("")
    training.control.profile_after(9)  # before it trains, so that it can't have ended yet
    training.start()
    wait_until(lambda: len(training.values) == 3)
    training.stop()
    assert (training.profiled_in, [*training.replies(0)]) == ([], [])
    training.control.profile_after(9)  # at once, without a step to wait for
    assert training.profiled_in == [4]


def test_a_function_that_ends_before_the_step_answers() -> None:
    training = Training(0, limit=3)
    training.start()
    training.control.command(Control(7, PAUSE, step=9))
    training.stop()
    wait_until(lambda: bool(training.replies(7)))
    assert next(reply for reply in training.replies(7) if isinstance(reply, Controlled)).error == (
        "its function ended before the next step"
    )


def test_a_pause_ends_where_the_training_has_to_save_and_end(group: Group) -> None:
    class Loop:
        def __init__(self) -> None:
            self.refusals: dict[str, str] = {}

        def must_run(self) -> bool:
            return is_over.is_set()

    is_over = threading.Event()
    (step,) = steps(group.request(PAUSE))
    for rank in group.ranks:
        rank.control.loop = Loop()  # type: ignore[assignment]
    is_over.set()
    wait_until(lambda: all(len(rank.values) > step + 2 for rank in group.ranks))


def test_steps_count_by_one_optimizer_of_several() -> None:
    sent: list[Event] = []
    control = TrainingControl(sent.append)
    control.attach("")
    first, second = object(), object()
    for _ in range(3):
        control.on_step(first)
        control.on_step(second)
    control.promise(StepRequested(1, PAUSE))
    assert StepPromised(1, 4) in sent


def test_ranks_that_other_launches_started_are_named() -> None:
    found: list[Replies] = []
    agreed = AgreedSteps(lambda request, then: pytest.fail("asked"), Job("train", 0, 2), elsewhere=2)
    agreed.request(RankRequest(Control(0, PAUSE)), found.append)
    agreed.poll()
    (reply,) = found[0].values()
    assert isinstance(reply, Controlled)
    assert "2 of its ranks were launched by other notebooks" in reply.error


def test_what_a_rank_that_runs_nothing_answers_is_not_recorded_as_done() -> None:
    job = Job("train", 0, 2)
    agreed = AgreedSteps(lambda request, then: None, job, elsewhere=0)
    agreed.on_report(Controlled(1, RESUME))
    assert not job.changes
    agreed.on_report(Controlled(1, RESUME, step=0))
    assert [change.action for change in job.changes] == [RESUME]
