"""Requests samples of the stacks of running ranks, for `job.flamegraph()`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from notebook_accel.events import Sampled, SamplesRequested
from notebook_accel.launch.driver.request_stacks import Reachable, reachable
from notebook_accel.launch.job.flamegraphs.samples import SampleRequest, SamplesByRank
from notebook_accel.launch.job.job import Job

_TIMEOUT = 3.0
"""Seconds after the end of the sampling after which the callback gets what has come so far."""


class SampleRequests:
    """Sends requests to the ranks of one attempt, several at a time. Only `request` may be called by other threads."""

    def __init__(self, ranks: Reachable, job: Job) -> None:
        self._ranks = ranks
        self._job = job
        self._new: deque[tuple[SampleRequest, Callable[[SamplesByRank], object]]] = deque()
        self._active: dict[int, _Active] = {}
        self._last_number = 0

    def request(self, request: SampleRequest, callback: Callable[[SamplesByRank], object]) -> None:
        """Calls `callback` with the samples, on the thread of the event loop. Any thread may request them."""
        self._new.append((request, callback))

    def poll(self, now: float) -> None:
        """Sends new requests, and ends those that have all replies or wait too long. Called several times a second."""
        while self._new:
            self._send(*self._new.popleft(), now)
        running = set(reachable(self._job))
        for number, active in list(self._active.items()):
            if now >= active.deadline or not running.intersection(active.ranks) - active.samples.keys():
                self._finish(number)

    def on_reply(self, rank: int, reply: Sampled) -> None:
        """Records a reply, unless it is to a request that is over."""
        if reply.number in self._active:
            self._active[reply.number].samples[rank] = reply

    def close(self) -> None:
        """Calls the waiting callbacks with what has come so far."""
        for number in list(self._active):
            self._finish(number)
        while self._new:
            self._new.popleft()[1]({})

    def _send(self, request: SampleRequest, callback: Callable[[SamplesByRank], object], now: float) -> None:
        ranks = [rank for rank in reachable(self._job) if request.member in (None, rank)]
        self._last_number += 1
        self._active[self._last_number] = _Active(callback, ranks, now + request.seconds + _TIMEOUT)
        self._ranks.send(ranks, SamplesRequested(self._last_number, request.seconds, request.rate))

    def _finish(self, number: int) -> None:
        active = self._active.pop(number)
        active.callback(active.samples)


@dataclass
class _Active:
    callback: Callable[[SamplesByRank], object]
    ranks: list[int]
    deadline: float
    samples: dict[int, Sampled] = field(default_factory=dict)
