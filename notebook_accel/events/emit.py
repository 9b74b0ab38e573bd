"""How code that knows nothing of launches says something: the rank that it runs in listens."""

from __future__ import annotations

import queue
from collections.abc import Callable

from notebook_accel import rank_local
from notebook_accel.events.base import Event
from notebook_accel.events.ranks import InputRequested, Metrics
from notebook_accel.events.requests import Answer

MetricsSink = Callable[[dict[str, float], "int | None"], None]

METRICS_SINK = f"{__name__}.metrics_sink"
"""Under this name a rank's space has what hears its metrics: `(values, step)`, as the event `Metrics` has them.

The values are its own from then on. Loops report at every step: to make an event takes longer than all the rest, and
even a function in between counts.
"""
_SINK = f"{__name__}.sink"
_ANSWERS = f"{__name__}.answers"


def set_sink(sink: Callable[[Event], None] | None, metrics: MetricsSink | None = None) -> None:
    """Has `sink(event)` called for each event emitted here, on the thread that emits; `None` ends it.

    Args:
        sink: What hears the events.
        metrics: What hears metrics instead; see `METRICS_SINK`.
    """
    if metrics is None and sink is not None:
        metrics = _as_events(sink)
    rank_local.space().update({_SINK: sink, METRICS_SINK: metrics})


def _as_events(sink: Callable[[Event], None]) -> MetricsSink:
    return lambda values, step: sink(Metrics(values, step))


def has_sink() -> bool:
    """Whether somebody listens, for those to whom an event is dear."""
    return rank_local.space().get(_SINK) is not None


def emit(event: Event) -> None:
    """Says something to whoever listens."""
    sink = rank_local.space().get(_SINK)
    if sink is not None:
        sink(event)


def input_answers() -> queue.SimpleQueue[Answer]:
    """What was answered to whom has `Asked`, on this rank's one channel."""
    found: queue.SimpleQueue[Answer] = rank_local.space().setdefault(_ANSWERS, queue.SimpleQueue())
    return found


def request_input(said: str, prompt: str) -> str | None:
    """Asks the user for a line, and waits for it; `None` where nobody can be asked."""
    if not has_sink():
        return None
    given = input_answers()
    while not given.empty():
        given.get()  # an interrupt came before it, when something else was asked
    emit(InputRequested(said, prompt))
    return given.get().text
