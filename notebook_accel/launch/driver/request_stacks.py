"""Requests the Python stacks of running ranks, for `job.stacks()`, a stall, or a timeout error.

A rank normally replies with its stacks itself. A rank that can't, because C code holds the GIL, is sent a signal that
makes faulthandler write the stacks to the rank's file, which does not need the GIL.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from notebook_accel.events import Stacks, StacksRequested, ThreadStack, to_wire
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.stacks import StacksByRank
from notebook_accel.launch.wire import stack_frames
from notebook_accel.launch.wire.constants import STACKS_SIGNAL
from notebook_accel.launch.wire.stream import Channel

_SIGNAL_AFTER = 1.0
"""Seconds without a reply after which a rank gets the signal. Any rank that can run Python replies sooner."""
_DUMP_QUIET = 0.05
"""Seconds without growth after which a rank's stacks file is considered complete."""
_TIMEOUT = 2.0
"""Seconds after which the callbacks get the stacks collected so far."""
_MAX_DUMP = 2**20


class Reachable(Protocol):
    """Ranks that take requests."""

    @property
    def channels(self) -> Sequence[Channel] | Mapping[int, Channel]:
        """By rank."""

    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to one that has a stacks file."""


class StackRequests:
    """Sends requests to the ranks of one attempt, one at a time. Only `request` may be called by other threads."""

    def __init__(self, ranks: Reachable, job: Job, files: Mapping[int, int]) -> None:
        self._ranks = ranks
        self._job = job
        self._files = files
        """Descriptors of the ranks' stacks files, by rank."""
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
            self._request.stacks_by_rank[rank] = reply.threads

    def close(self) -> None:
        """Calls the waiting callbacks with the stacks collected so far."""
        if self._request is not None:
            self._finish(self._request)
        while self._pending:
            self._pending.popleft()({})

    def _send(self, now: float) -> None:
        self._request_number += 1
        self._request = _Request(now, {}, {}, list(self._pending))
        self._pending.clear()
        header, _ = to_wire(StacksRequested(self._request_number))
        for rank in self._reachable():
            with contextlib.suppress(OSError, LookupError):  # it has just exited
                self._ranks.channels[rank].send(header)

    def _collect(self, request: _Request, now: float) -> None:
        late = [rank for rank in self._reachable() if rank not in request.stacks_by_rank]
        if late and now - request.sent_at < _SIGNAL_AFTER:
            return
        for rank in [rank for rank in late if rank in self._files]:
            self._dump(request, rank, now)
        late = [rank for rank in late if rank not in request.stacks_by_rank]
        if not late or now - request.sent_at > _TIMEOUT:
            self._finish(request)

    def _dump(self, request: _Request, rank: int, now: float) -> None:
        """Signals a rank to write its stacks to its file; later calls read the file once it has stopped growing."""
        fd = self._files[rank]
        if rank not in request.dump_sizes:
            _empty(fd)
            request.dump_sizes[rank] = (0, now)
            self._ranks.signal(rank, STACKS_SIGNAL)
            return
        size = os.fstat(fd).st_size
        before, since = request.dump_sizes[rank]
        if size != before:
            request.dump_sizes[rank] = (size, now)
        elif size and now - since > _DUMP_QUIET:
            request.stacks_by_rank[rank] = stack_frames.parse_dump(os.pread(fd, _MAX_DUMP, 0).decode(errors="replace"))
            _empty(fd)

    def _finish(self, request: _Request) -> None:
        self._request = None
        for callback in request.callbacks:
            callback(request.stacks_by_rank)

    def _reachable(self) -> list[int]:
        """The ranks that have started, and have neither exited nor answered."""
        states = enumerate(self._job.ranks)
        return [rank for rank, state in states if state.pid is not None and not (state.exited or state.answered)]


@dataclass
class _Request:
    sent_at: float
    stacks_by_rank: dict[int, Sequence[ThreadStack]]
    dump_sizes: dict[int, tuple[int, float]]
    """The signalled ranks: the size of each rank's file, and when it reached that size."""
    callbacks: list[Callable[[StacksByRank], object]]


def _empty(fd: int) -> None:
    """Empties a stacks file and resets its offset, which the rank shares because it shares the open file."""
    os.ftruncate(fd, 0)
    os.lseek(fd, 0, os.SEEK_SET)
