"""Which ranks are ended when, by a clock that the tests turn."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from notebook_accel.events import Exited, Hello, Phase, PhaseChanged
from notebook_accel.launch.driver.escalation import Shutdown
from notebook_accel.launch.driver.stop_policy import ONE_CALL, StopReason
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.wire.constants import GRACE


class Group:
    """Two ranks; keeps what is done to them."""

    def __init__(self) -> None:
        self.ranks = self
        self.done: list[tuple[Any, ...]] = []

    def signal(self, rank: int, signum: signal.Signals) -> None:
        self.done.append((rank, signum))

    def close_store(self) -> None:
        self.done.append(("close_store",))


@pytest.fixture
def job() -> Job:
    """The first rank waits for the second, which runs."""
    job = Job("train", 0, 2)
    for rank, phase in enumerate((Phase.WAITING, Phase.RUNNING)):
        job.apply(rank, Hello(rank + 1, "here"))
        job.apply(rank, PhaseChanged(phase))
    return job


def stop(job: Job, group: Group, *, until: float) -> Shutdown:
    """Cancels the job at 0, and lets the second rank end at once; turns the clock to what is given."""
    shutdown = Shutdown(group, job, ONE_CALL, range(2))  # type: ignore[arg-type]
    shutdown.begin(StopReason.CANCEL, 0.0)
    shutdown.escalate(0.0)
    assert group.done == [(0, signal.SIGINT), (1, signal.SIGINT)]
    group.done.clear()
    job.apply(1, Exited(code=1, at=time.time()))
    for tenth in range(1, round(10 * until) + 1):
        shutdown.escalate(tenth / 10)
    return shutdown


def test_a_rank_that_waits_for_one_that_was_ended_is_ended_within_three_seconds(job: Job) -> None:
    group = Group()
    stop(job, group, until=3.0)
    assert group.done == [("close_store",), (0, signal.SIGTERM)]


def test_a_rank_that_waits_for_nobody_has_all_of_its_time(job: Job) -> None:
    job.apply(0, PhaseChanged(Phase.RUNNING))
    group = Group()
    shutdown = stop(job, group, until=GRACE - 0.1)
    assert group.done == [("close_store",)]
    shutdown.escalate(GRACE)
    assert group.done[1:] == [(0, signal.SIGTERM)]


def signals_by_time(job: Job, reason: StopReason) -> list[tuple[float, int, signal.Signals]]:
    """When each of two ranks gets which signal, if neither heeds any; in tenths of a second."""
    for rank in range(2):
        job.apply(rank, PhaseChanged(Phase.RUNNING))
    group = Group()
    shutdown = Shutdown(group, job, ONE_CALL, range(2))  # type: ignore[arg-type]
    shutdown.begin(reason, 0.0)
    found = []
    for tenth in range(100):
        shutdown.escalate(tenth / 10)
        found += [(tenth / 10, *done) for done in group.done]
        group.done.clear()
    assert shutdown.next_step_at() is None
    return found


@pytest.mark.parametrize(
    ("reason", "asked", "terminated", "killed"),
    [
        (StopReason.INTERRUPT, 0.0, 5.0, 6.0),
        (StopReason.CANCEL, 0.0, 5.0, 6.0),
        (StopReason.FAILURE, None, 1.0, 1.5),
        (StopReason.DEATH, None, 0.5, 1.0),
        (StopReason.TIMEOUT, None, 1.5, 2.5),
    ],
)
def test_a_rank_has_time_to_heed_a_signal_before_it_gets_the_next(
    job: Job, reason: StopReason, asked: float | None, terminated: float, killed: float
) -> None:
    steps = [(asked, signal.SIGINT), (terminated, signal.SIGTERM), (killed, signal.SIGKILL)]
    assert signals_by_time(job, reason) == [
        (at, rank, signum) for at, signum in steps if at is not None for rank in range(2)
    ]


def test_a_rank_that_ends_after_its_sigterm_is_not_killed(job: Job) -> None:
    group = Group()
    shutdown = Shutdown(group, job, ONE_CALL, range(2))  # type: ignore[arg-type]
    shutdown.begin(StopReason.FAILURE, 0.0)
    shutdown.escalate(1.0)
    assert group.done == [(0, signal.SIGTERM), (1, signal.SIGTERM)]
    job.apply(0, Exited(None, signal.SIGTERM, at=time.time()))
    shutdown.escalate(1.5)
    assert group.done[2:] == [(1, signal.SIGKILL)]
