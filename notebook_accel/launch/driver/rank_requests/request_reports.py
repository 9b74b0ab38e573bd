"""Requests anything but stacks from running ranks, such as samples, profiles, collectives, and promises of a step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from notebook_accel.events import Event
from notebook_accel.launch.driver.rank_requests.reachable_ranks import Reachable, reachable
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.requests import RankRequest, Replies

_START_TIMEOUT = 20.0
"""Seconds for which a request waits for ranks that have not started; then those that have get it."""
_REPLY_TIMEOUT = 3.0
"""Seconds after the time that a reply may take after which the callback gets what has come so far."""


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
