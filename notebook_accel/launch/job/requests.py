"""Requests of a job's methods to the code that runs the job, which may be in another process, and to its ranks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import math
import numbers
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard, TypeVar, cast

from notebook_accel.errors import ConfigurationError, JobEndedError
from notebook_accel.events import Event, JobStarted, Stacks, StacksRequested, as_float
from notebook_accel.launch.job import location
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.location import StacksByRank
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.wire import stack_frames

Replies = Mapping[int, Event]
"""The reply of each rank that gave one, by its index in the job."""
_PATIENCE = 30.0
"""Seconds after the time that a reply may take after which the wait ends."""
_RETRY = 0.05
"""Seconds between two requests to a job of which no rank runs."""
_SECONDS = "a number of seconds"
_Method = TypeVar("_Method", bound=Callable[..., Any])
_LONGEST_STACK = 8000
"""Characters of a stack; a longer one loses its outermost frames."""


@dataclass(frozen=True)
class RankRequest:
    """What to request of ranks. Each replies once, with an event that carries the number of the request."""

    event: Event
    """What is sent to the ranks. Its field `number` is set when it is sent."""
    seconds: float = 0.0
    """How long a rank may take for its reply."""
    member: int | None = None
    """The index of the only rank that gets the request; `None` for all."""


RequestRanks = Callable[[RankRequest, Callable[[Replies], object]], object]
"""Sends a request, and calls back with the replies, on any thread."""


def request_stacks(request_ranks: RequestRanks, then: Callable[[StacksByRank], object]) -> None:
    """Requests the stacks of all ranks, and calls back with them, on any thread."""

    def take(replies: Replies) -> None:
        then({rank: event.threads for rank, event in replies.items() if isinstance(event, Stacks)})

    request_ranks(RankRequest(StacksRequested(0)), take)


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
    record: Callable[[], object] = lambda: None
    """Records the job on disk now, on any thread, if that can be done."""
    request_ranks: RequestRanks = no_replies
    """Sends a request to the ranks, and calls back, on any thread, with their replies."""
    shorten_traceback: Callable[[BaseException], object] = lambda error: None
    """Makes an exception show without the frames of this package."""
    notice_elsewhere: Callable[[str], object] = lambda text: None
    """Shows a notice below the cell that runs, if that is another than the one that shows the job."""
    rule_functions: dict[int, Callable[[Any], object]] | None = field(default_factory=dict)
    """The functions of rules that call one, by the number of the rule; `None` where another process runs the job."""
    values: Callable[[], Any] | None = None
    """Fetches what the ranks returned, for jobs whose `finish` is not given the values."""


class JobHandle(JobState):
    """The state of a job, and the means to act on it."""

    def __init__(self, start: JobStarted) -> None:
        super().__init__(start)
        self.runner = Runner()


class Answers(NamedTuple):
    """What the ranks replied."""

    by_rank: dict[int, Event]
    """By their global ranks."""
    missing: list[int]
    """The global ranks that run and did not reply."""


def replies(job: JobHandle, event: Event, seconds: float, rank: int | None, cause: str) -> Answers:
    """Sends a request to the ranks of a job, and waits for their replies.

    Args:
        job: The job.
        event: What is sent to the ranks.
        seconds: How long a rank may take.
        rank: The global rank that gets the request; `None` for all.
        cause: What can't be done if the job has ended, as a part of a sentence: `its ranks can't be sampled`.

    Raises:
        ConfigurationError: The job has no such rank, or waits for its devices.
        JobEndedError: The job has ended.
    """
    ranks = [state.rank for state in job.ranks]
    if rank is not None and rank not in ranks:
        raise ConfigurationError(f"{job.title} has no rank {rank!r}: its ranks are {ranks[0]} to {ranks[-1]}")
    if job.status.ended:
        raise ended(job, cause)
    if job.awaits:
        raise ConfigurationError(f"{job.title} waits {job.awaits}, so {cause} once its ranks have started")
    member = None if rank is None else ranks.index(rank)
    request, deadline = RankRequest(event, seconds, member), time.monotonic() + _PATIENCE
    while True:
        could_reply = _some_are_reachable(job)  # a rank that has become so since then was not asked
        if (found := _wait(request, job)) or job.status.ended or time.monotonic() > deadline:
            break
        if could_reply and _some_are_reachable(job):
            break
        time.sleep(_RETRY)  # the launch has not begun yet, or is about to end or to start over
    if not found and job.status.ended:
        raise ended(job, cause)
    wanted = [
        index
        for index, state in enumerate(job.ranks)
        if member in (None, index) and not (state.exited or state.answered)
    ]
    missing = [ranks[index] for index in wanted if index not in found]
    return Answers({ranks[index]: event for index, event in sorted(found.items())}, missing)


def _some_are_reachable(job: JobHandle) -> bool:
    return any(state.is_reachable for state in job.ranks)


def _wait(request: RankRequest, job: JobHandle) -> Replies:
    answer: concurrent.futures.Future[Replies] = concurrent.futures.Future()
    job.runner.request_ranks(request, answer.set_result)
    with contextlib.suppress(concurrent.futures.TimeoutError):
        return answer.result(math.ceil(request.seconds) + _PATIENCE)
    return {}


def ended(job: JobState, cause: str) -> JobEndedError:
    """The error for a request that comes too late."""
    return JobEndedError(
        f"{job.title} has ended ({job.status.value}), so {cause} while it runs, from another cell after "
        "notebook_launcher(..., block=False)"
    )


def is_number(value: object) -> TypeGuard[numbers.Real]:
    """Whether it is a real number, also one of NumPy's, other than NaN. Truth values are none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and not math.isnan(as_float(value))


def checked_number(
    name: str, value: object, *, above: float | None = None, most: float = math.inf, what: str = _SECONDS
) -> float:
    """Returns a number as a float, infinity if it is beyond all floats.

    Args:
        name: The name of the argument.
        value: What the user passed.
        above: The number must be greater than this; by default, it may be any number.
        most: The number must not be greater than this.
        what: What the argument must be, for the message.

    Raises:
        ConfigurationError: It is not a number, or out of range.
    """
    if is_number(value):
        number = as_float(value)
        if (above is None or number > above) and number <= most:
            return number
    limits = "" if above is None else f" above {above:g} and at most {most:g}"
    raise ConfigurationError(f"{name} must be {what}{limits}, not {value!r:.80}")


def checked_timeout(value: object, what: str = _SECONDS) -> float:
    """Returns how many seconds to wait, at most as long as a thread can. Without time left, a wait ends at once.

    Raises:
        ConfigurationError: It is not a number.
    """
    return min(checked_number("timeout", value, what=what), threading.TIMEOUT_MAX)


def short_errors(method: _Method) -> _Method:
    """Shortens a `TimeoutError`, and has an interrupt say that the job keeps running.

    The package's own errors are short in any case; these are Python's.
    """

    @functools.wraps(method)
    def wrapped(self: JobHandle, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except TimeoutError as error:
            self.runner.shorten_traceback(error)
            raise
        except KeyboardInterrupt:
            interrupt = KeyboardInterrupt(
                f"job.{method.__name__}() was interrupted; {self.title} keeps running, and may still do what was "
                "asked: cancel() ends it"
            )
            self.runner.shorten_traceback(interrupt)
            raise interrupt from None

    return cast(_Method, wrapped)


class RequestedStacks:
    """The last requested stack of each rank of a job."""

    def __init__(self, job: JobHandle) -> None:
        self._job = job
        self._texts: dict[int, str] = {}
        """By global rank."""

    def request(self, rank: int) -> None:
        """Requests the stack of a global rank. Any thread may call it."""
        self._texts[rank] = f"Asking rank {rank} …"
        request_stacks(self._job.runner.request_ranks, lambda found: self._receive(rank, found))

    def text(self, state: RankState) -> str:
        """The stack of a rank, with when it was taken; empty if there is none, or if the rank has ended."""
        return "" if state.phase.ended else self._texts.get(state.rank, "")

    def _receive(self, rank: int, found: StacksByRank) -> None:
        index, state = next(entry for entry in enumerate(self._job.ranks) if entry[1].rank == rank)
        now = time.strftime("%H:%M:%S")
        threads = found.get(index, ())
        if not threads:
            self._texts[rank] = f"{now}: rank {rank} did not answer"
            return
        at = location.of(state, threads)
        stack = stack_frames.outline(at.frames)
        cut = stack if len(stack) <= _LONGEST_STACK else f"…\n{stack[-_LONGEST_STACK:].partition(chr(10))[2]}"
        self._texts[rank] = f"{now}: {location.sentence([at])}\n{cut}"
