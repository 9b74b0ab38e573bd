"""Requests the Python stacks of running ranks, for `job.stacks()`, a stall, or a timeout error; and other reports.

A rank normally replies with its stacks itself. A rank that can't, because C code holds the GIL, is sent a signal that
makes faulthandler write them, which does not need the GIL.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from notebook_accel.events import Event, Stacks, StacksRequested, ThreadStack
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests.runner import RankRequest, Replies
from notebook_accel.launch.job.stacks import StacksByRank

_SIGNAL_AFTER = 1.0
"""Seconds without a reply after which a rank gets the signal. Any rank that can run Python replies sooner."""
_TIMEOUT = 2.0
"""Seconds after which the callbacks get the stacks collected so far."""

_START_TIMEOUT = 20.0
"""Seconds for which a request waits for ranks that have not started; then those that have get it."""
_REPLY_TIMEOUT = 3.0
"""Seconds after the time that a reply may take after which the callback gets what has come so far."""


class Reachable(Protocol):
    """Ranks that take requests, such as those of an engine."""

    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event to ranks."""

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Has ranks write their stacks by a signal, if they can; the replies are events `Stacks` with this number."""


class StackRequests:
    """Sends requests to the ranks of one attempt, one at a time. Only `request` may be called by other threads."""

    def __init__(self, ranks: Reachable, job: Job) -> None:
        self._ranks = ranks
        self._job = job
        self._pending: deque[Callable[[StacksByRank], object]] = deque()
        self._request: _Request | None = None
        self._request_number = 0

    def request(self, callback: Callable[[StacksByRank], object]) -> None:
        """Calls `callback` with the stacks, on the thread of the event loop. Any thread may request them."""
        self._pending.append(callback)

    def poll(self, now: float) -> None:
        """Sends the next request, or collects the replies to the current one. Called several times a second."""
        if self._request is None and self._pending:
            self._send(now)
        if self._request is not None:
            self._collect(self._request, now)

    def on_reply(self, rank: int, reply: Stacks) -> None:
        """Records a reply, unless it is to a request that is over."""
        if self._request is not None and reply.number == self._request_number:
            self._request.stacks_by_rank.setdefault(rank, reply.threads)

    def close(self) -> None:
        """Calls the waiting callbacks with the stacks collected so far."""
        if self._request is not None:
            self._finish(self._request)
        while self._pending:
            self._pending.popleft()({})

    def _send(self, now: float) -> None:
        self._request_number += 1
        self._request = _Request(now, list(self._pending))
        self._pending.clear()
        self._ranks.send(reachable(self._job), StacksRequested(self._request_number))

    def _collect(self, request: _Request, now: float) -> None:
        late = [rank for rank in reachable(self._job) if rank not in request.stacks_by_rank]
        if not late or now - request.sent_at > _TIMEOUT:
            self._finish(request)
        elif now - request.sent_at >= _SIGNAL_AFTER and not request.signalled:
            request.signalled = True
            self._ranks.dump_stacks(late, self._request_number)

    def _finish(self, request: _Request) -> None:
        self._request = None
        for callback in request.callbacks:
            callback(request.stacks_by_rank)


def reachable(job: Job) -> list[int]:
    """The ranks that have started, and have neither exited nor answered."""
    states = enumerate(job.ranks)
    return [rank for rank, state in states if state.pid is not None and not (state.exited or state.answered)]


@dataclass
class _Request:
    sent_at: float
    callbacks: list[Callable[[StacksByRank], object]]
    stacks_by_rank: dict[int, Sequence[ThreadStack]] = field(default_factory=dict)
    signalled: bool = False
    """Ranks that had not replied got the signal."""


class RankRequests:
    """Sends requests to the ranks of one attempt, several at a time. Only `request` may be called by other threads."""

    def __init__(self, ranks: Reachable, job: Job) -> None:
        self._ranks = ranks
        self._job = job
        self._new: deque[tuple[RankRequest, Callable[[Replies], object], float]] = deque()
        self._active: dict[int, _Active] = {}
        self._last_number = 0

    def request(self, request: RankRequest, callback: Callable[[Replies], object]) -> None:
        """Calls `callback` with the replies, on the thread of the event loop. Any thread may request them."""
        self._new.append((request, callback, time.monotonic() + _START_TIMEOUT))

    def poll(self, now: float) -> None:
        """Sends new requests, and ends those that have all replies or wait too long. Called several times a second."""
        while self._new and (self._have_started() or now >= self._new[0][2]):
            request, callback, _ = self._new.popleft()
            self._send(request, callback, now)
        running = set(reachable(self._job))
        for number, active in list(self._active.items()):
            if now >= active.deadline or not running.intersection(active.ranks) - active.replies.keys():
                self._finish(number)

    def on_reply(self, rank: int, reply: Event, number: int) -> None:
        """Records a reply to the request of this number, unless that is over."""
        if number in self._active:
            self._active[number].replies[rank] = reply

    def close(self) -> None:
        """Calls the waiting callbacks with what has come so far."""
        for number in list(self._active):
            self._finish(number)
        while self._new:
            self._new.popleft()[1]({})

    def _have_started(self) -> bool:
        return all(state.pid is not None or state.exited for state in self._job.ranks)

    def _send(self, request: RankRequest, callback: Callable[[Replies], object], now: float) -> None:
        ranks = [rank for rank in reachable(self._job) if request.member in (None, rank)]
        self._last_number += 1
        self._active[self._last_number] = _Active(callback, ranks, now + request.seconds + _REPLY_TIMEOUT)
        event: Any = request.event
        self._ranks.send(ranks, replace(event, number=self._last_number))

    def _finish(self, number: int) -> None:
        active = self._active.pop(number)
        active.callback(active.replies)


@dataclass
class _Active:
    callback: Callable[[Replies], object]
    ranks: list[int]
    deadline: float
    replies: dict[int, Event] = field(default_factory=dict)
