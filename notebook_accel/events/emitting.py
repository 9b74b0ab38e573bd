"""How code that knows nothing of launches says something: the rank that it runs in listens."""

from __future__ import annotations

import queue
from collections.abc import Callable

from notebook_accel.events.base import Event
from notebook_accel.events.ranks import Asked, Metrics
from notebook_accel.events.requests import Answer

MetricsSink = Callable[[dict[str, float], "int | None"], None]

_sink: Callable[[Event], None] | None = None
metrics_sink: MetricsSink | None = None
"""What hears metrics: `(values, step)`, as the event `Metrics` has them; the values are its own from then on.

Loops report at every step. To make an event takes longer than all the rest, and even a function in between counts.
"""


def listen(sink: Callable[[Event], None] | None, metrics: MetricsSink | None = None) -> None:
    """Has `sink(event)` called for each event emitted here, on the thread that emits; `None` ends it.

    Args:
        sink: What hears the events.
        metrics: What hears metrics instead, as `metrics_sink`.
    """
    global _sink, metrics_sink
    _sink = sink
    metrics_sink = metrics if metrics or sink is None else lambda values, step: sink(Metrics(values, step))


def is_heard() -> bool:
    """Whether somebody listens, for those to whom an event is dear."""
    return _sink is not None


def emit(event: Event) -> None:
    """Says something to whoever listens."""
    if _sink is not None:
        _sink(event)


answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
"""What was answered to whom has `Asked`, on this process's one channel."""


def ask(said: str, prompt: str) -> str | None:
    """Asks the user for a line, and waits for it; `None` where nobody can be asked."""
    if _sink is None:
        return None
    emit(Asked(said, prompt))
    return answers.get().text
