"""The stack of one rank, as the panel shows it when the user asks."""

from __future__ import annotations

from collections.abc import Callable

from notebook_accel.events import Frame, Hello, Phase, PhaseChanged, Stacks, StacksRequested, ThreadStack
from notebook_accel.launch.job import requests
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.location import StacksByRank
from notebook_accel.launch.job.requests import RankRequest, Replies, RequestedStacks

STACK = [ThreadStack("MainThread", [Frame("/home/me/train.py", 12, "train")], main=True)]


def asked(job: Job) -> tuple[RequestedStacks, list[Callable[[StacksByRank], object]]]:
    """The stacks of a job, and the callbacks of the requests."""
    callbacks: list[Callable[[StacksByRank], object]] = []

    def request_ranks(request: RankRequest, then: Callable[[Replies], object]) -> None:
        assert isinstance(request.event, StacksRequested)
        callbacks.append(lambda found: then({rank: Stacks(1, threads) for rank, threads in found.items()}))

    job.runner.request_ranks = request_ranks
    return RequestedStacks(job), callbacks


def test_a_rank_is_asked_and_its_stack_shown_with_the_time() -> None:
    job = Job("train", 4, 2)  # the ranks 4 and 5 of the world
    job.apply(1, PhaseChanged(Phase.RUNNING))
    stacks, callbacks = asked(job)
    assert stacks.text(job.ranks[1]) == ""
    stacks.request(5)
    assert stacks.text(job.ranks[1]) == "Asking rank 5 …"
    callbacks[0]({1: STACK})
    assert stacks.text(job.ranks[0]) == ""
    first, second = stacks.text(job.ranks[1]).splitlines()
    assert first[8:].startswith(": rank 5 ")
    assert "line 12 in train" in second


def test_a_rank_that_does_not_answer_is_said_to_not_answer() -> None:
    job = Job("train", 0, 2)
    stacks, callbacks = asked(job)
    stacks.request(1)
    callbacks[0]({0: STACK})
    assert stacks.text(job.ranks[1])[8:] == ": rank 1 did not answer"


def test_a_rank_that_has_ended_is_nowhere() -> None:
    job = Job("train", 0, 1)
    stacks, callbacks = asked(job)
    stacks.request(0)
    callbacks[0]({0: STACK})
    job.apply(0, PhaseChanged(Phase.DONE))
    assert stacks.text(job.ranks[0]) == ""


def test_a_rank_that_starts_while_nobody_answers_is_asked_too() -> None:
    """In a cell, right after `notebook_launcher(train, block=False)`."""
    job = Job("train", 0, 1)

    def too_early(request: RankRequest, then: Callable[[Replies], object]) -> None:
        job.runner.request_ranks = lambda _, then: then({0: Stacks(1, STACK)})
        job.apply(0, Hello(pid=1, host="here"))
        then({})

    job.runner.request_ranks = too_early
    assert requests.replies(job, StacksRequested(0), 0, None, "").missing == []
