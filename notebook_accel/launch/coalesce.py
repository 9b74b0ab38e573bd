"""What a rank tells only now and then: its latest, however often it says it."""

from __future__ import annotations

from collections import deque

from notebook_accel.events import Bar, Event, Metrics
from notebook_accel.launch import bars

PACE = 0.1
"""Seconds between two times that it is told."""
_MOST_AT_ONCE = 8


class Latest:
    """Holds metrics until they are told. Any thread adds; one takes.

    All are kept while they are few. What comes beyond that within one `PACE` is merged into the last, so that of each
    name the latest value always arrives.
    """

    def __init__(self) -> None:
        self._metrics: deque[Metrics] = deque()
        self._due = 0.0

    def add(self, metrics: Metrics) -> None:
        if len(self._metrics) >= _MOST_AT_ONCE:
            try:
                last = self._metrics.pop()
            except IndexError:  # they have been taken just now
                pass
            else:
                metrics = Metrics({**last.values, **metrics.values}, metrics.step, metrics.at)
        self._metrics.append(metrics)

    def take(self, now: float) -> list[Event]:
        """What there is to tell of bars and metrics, if it is time to."""
        return self.take_all(now) if now >= self._due else []

    def take_all(self, now: float) -> list[Event]:
        """The same, whatever the time."""
        self._due = now + PACE
        told: list[Bar | Metrics] = [*bars.take()]
        while self._metrics:
            told.append(self._metrics.popleft())
        return [*told]
