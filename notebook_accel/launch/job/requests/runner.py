"""What a job can request of the code that runs it, which may be in another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.events import Event
from notebook_accel.launch.job.stacks import StacksByRank


@dataclass(frozen=True)
class RankRequest:
    """What to request of ranks. Each replies once, with an event that carries the number of the request."""

    event: Event
    """What is sent to the ranks. Its field `number` is set when it is sent."""
    seconds: float = 0.0
    """How long a rank may take for its reply."""
    member: int | None = None
    """The index of the only rank that gets the request; `None` for all."""


Replies = Mapping[int, Event]
"""The reply of each rank that gave one, by its index in the job."""
RequestRanks = Callable[[RankRequest, Callable[[Replies], object]], object]
"""Sends a request, and calls back with the replies, on any thread."""


def no_stacks(then: Callable[[StacksByRank], object]) -> None:
    """The value of `Runner.request_stacks` while no rank can answer."""
    then({})


def no_replies(request: RankRequest, then: Callable[[Replies], object]) -> None:
    """The value of `Runner.request_ranks` while no rank can answer."""
    then({})


@dataclass
class Runner:
    """The functions that a job calls. The code that runs the job sets them, and changes them as the job proceeds."""

    cancel: Callable[[], object] = lambda: None
    """Requests that the ranks stop."""
    show: Callable[[], object] = lambda: None
    """Shows the job below the current cell."""
    outputs: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """What the ranks have written and displayed below the job's first view, as outputs of the notebook format. That
    view takes this away, since none of it is below another one."""
    forget_outputs: Callable[[], object] = lambda: None
    """Frees what `outputs` returns, once the views have been drawn for the last time."""
    request_stacks: Callable[[Callable[[StacksByRank], object]], object] = no_stacks
    """Calls back, on any thread, with the stacks of the ranks."""
    request_ranks: RequestRanks = no_replies
    """Sends any other request to the ranks, and calls back, on any thread, with their replies."""
    shorten_traceback: Callable[[BaseException], object] = lambda error: None
    """Makes an exception show without the frames of this package."""
    values: Callable[[], Any] | None = None
    """Fetches what the ranks returned, for jobs whose `finish` is not given the values."""
