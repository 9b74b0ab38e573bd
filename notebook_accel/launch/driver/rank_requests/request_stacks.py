"""Requests the Python stacks of running ranks, for `job.stacks()`, a stall, or a timeout error.

A rank normally replies with its stacks itself. A rank that can't, because C code holds the GIL, is sent a signal that
makes faulthandler write them, which does not need the GIL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from notebook_accel.events import Stacks, StacksRequested, ThreadStack
from notebook_accel.launch.driver.rank_requests.reachable_ranks import Reachable, reachable
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.stacks import StacksByRank

_SIGNAL_AFTER = 1.0
"""Seconds without a reply after which a rank gets the signal. Any rank that can run Python replies sooner."""
_TIMEOUT = 2.0
"""Seconds after which the callbacks get the stacks collected so far."""


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


@dataclass
class _Request:
    sent_at: float
    callbacks: list[Callable[[StacksByRank], object]]
    stacks_by_rank: dict[int, Sequence[ThreadStack]] = field(default_factory=dict)
    signalled: bool = False
    """Ranks that had not replied got the signal."""
