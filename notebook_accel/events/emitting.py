"""How code that knows nothing of launches says something: the rank that it runs in listens."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

from notebook_accel import rank_local
from notebook_accel.events.base import Event
from notebook_accel.events.ranks import Asked, Metrics
from notebook_accel.events.requests import Answer

MetricsSink = Callable[[dict[str, float], "int | None", float], None]

_SINK = f"{__name__}.sink"
_METRICS_SINK = f"{__name__}.metrics_sink"
_ANSWERS = f"{__name__}.answers"


def listen(sink: Callable[[Event], None] | None, metrics_sink: MetricsSink | None = None) -> None:
    """Has `sink(event)` called for each event emitted here, on the thread that emits; `None` ends it.

    Args:
        sink: What hears the events.
        metrics_sink: What hears metrics instead, as `(values, step, at)`; the values are its own from then on. Loops
            report at every step, and to make an event takes longer than all the rest.
    """
    rank_local.space().update({_SINK: sink, _METRICS_SINK: metrics_sink})


def is_heard() -> bool:
    """Whether somebody listens, for those to whom an event is dear."""
    return rank_local.space().get(_SINK) is not None


def emit(event: Event) -> None:
    """Says something to whoever listens."""
    sink = rank_local.space().get(_SINK)
    if sink is not None:
        sink(event)


def emit_metrics(values: dict[str, float], step: int | None) -> None:
    """Says what the event `Metrics` says. The caller gives the values away."""
    space = rank_local.space()
    metrics_sink = space.get(_METRICS_SINK)
    if metrics_sink is not None:
        metrics_sink(values, step, time.time())
    elif (sink := space.get(_SINK)) is not None:
        sink(Metrics(values, step))


def answers() -> queue.SimpleQueue[Answer]:
    """What was answered to whom has `Asked`, on this rank's one channel."""
    found: queue.SimpleQueue[Answer] = rank_local.space().setdefault(_ANSWERS, queue.SimpleQueue())
    return found


def ask(said: str, prompt: str) -> str | None:
    """Asks the user for a line, and waits for it; `None` where nobody can be asked."""
    if not is_heard():
        return None
    emit(Asked(said, prompt))
    return answers().get().text
