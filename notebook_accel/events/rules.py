"""Rules: what a job does by itself once a metric of its ranks meets a condition. Its driver watches the metric."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.events.base import Event
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE

NOTIFY, STOP, CALL = "notify", "stop", "call"
ACTIONS = (NOTIFY, PAUSE, CHECKPOINT, END_AFTER_EPOCH, STOP, CALL)
"""What a rule does."""


@dataclass(frozen=True)
class Rule:
    """A condition of a metric, and what happens once it is met. It has one of `is_nan`, limits, and `patience`."""

    metric: str
    action: str
    """One of `ACTIONS`."""
    is_nan: bool = False
    above: float | None = None
    below: float | None = None
    for_steps: int = 1
    """How many steps in a row the condition has to hold."""
    patience: int | None = None
    """How many reports in a row may bring no improvement."""
    min_delta: float = 0.0
    """The least change that is an improvement."""
    mode: str = ""
    """`min` or `max`: which values are better."""
    baseline: float | None = None
    """The value that improvements have to pass."""
    function: str = ""
    """The name of the function that is called."""


@dataclass(frozen=True)
class RuleChanged(Event):
    """A rule of the job was added, met, or removed. Also what is sent to the driver to add or to remove one."""

    kind = "rule"
    number: int
    """1 for the job's first; 0 in a request to add one."""
    rule: Rule
    met: int = 0
    """How often its condition was met."""
    last: str = ""
    """How it was met last: `loss is NaN at step 120 on rank 1`."""
    removed: bool = False
