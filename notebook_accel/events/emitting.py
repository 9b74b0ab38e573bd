"""How code that knows nothing of launches says something: the rank that it runs in listens."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from notebook_accel.events.base import Event
from notebook_accel.events.ranks import Asked, Metrics
from notebook_accel.events.requests import Answer

MetricsSink = Callable[[dict[str, float], "int | None", float], None]

_sink: Callable[[Event], None] | None = None
_metrics_sink: MetricsSink | None = None


def listen(sink: Callable[[Event], None] | None, metrics_sink: MetricsSink | None = None) -> None:
    """Has `sink(event)` called for each event emitted here, on the thread that emits; `None` ends it.

    Args:
        sink: What hears the events.
        metrics_sink: What hears metrics instead, as `(values, step, at)`; the values are its own from then on. Loops
            report at every step, and to make an event takes longer than all the rest.
    """
    global _sink, _metrics_sink
    _sink, _metrics_sink = sink, metrics_sink


def is_heard() -> bool:
    """Whether somebody listens, for those to whom an event is dear."""
    return _sink is not None


def emit(event: Event) -> None:
    """Says something to whoever listens."""
    if _sink is not None:
        _sink(event)


def emit_metrics(values: dict[str, float], step: int | None) -> None:
    """Says what the event `Metrics` says. The caller gives the values away."""
    if _metrics_sink is not None:
        _metrics_sink(values, step, time.time())
    elif _sink is not None:
        _sink(Metrics(values, step))


answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
"""What was answered to whom has `Asked`, on this process's one channel."""


def ask(said: str, prompt: str) -> str | None:
    """Asks the user for a line, and waits for it; `None` where nobody can be asked."""
    if _sink is None:
        return None
    emit(Asked(said, prompt))
    return answers.get().text
