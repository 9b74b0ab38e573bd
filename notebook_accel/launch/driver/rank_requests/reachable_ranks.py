"""The ranks that a request can reach."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from notebook_accel.events import Event
from notebook_accel.launch.job.job import Job


class Reachable(Protocol):
    """Ranks that take requests, such as those of an engine."""

    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event to ranks."""

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Makes ranks write their stacks by a signal, if they can. The replies are `Stacks` with this number."""


def reachable(job: Job) -> list[int]:
    """The ranks that have started, and have neither exited nor answered."""
    states = enumerate(job.ranks)
    return [rank for rank, state in states if state.pid is not None and not (state.exited or state.answered)]
