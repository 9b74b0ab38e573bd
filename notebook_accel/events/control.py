"""Controls of a running training job: what is sent to its ranks to pause or change it, and what they report.

Whatever must happen at the same step on all ranks takes two messages. The driver first asks each rank for a step that
it promises not to go beyond, and then sends the command with the farthest of these steps, which no rank has passed:

    driver ── StepRequested ─▶ ranks     driver ── Control ─▶ ranks
    driver ◀── StepPromised ── ranks     driver ◀── Controlled ── ranks, once it is done there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from notebook_accel.events.base import Event

PAUSE, RESUME, CHECKPOINT, END_AFTER_EPOCH, TUNE = "pause", "resume", "checkpoint", "end after epoch", "tune"
"""What a `Control` does."""
PROFILE = "profile"
"""What a `ProfileRequested` does, for which the driver also needs a step."""
WITHDRAW = "withdraw"
"""The `Control` that releases ranks from their promise, because another rank has given none."""


@dataclass(frozen=True)
class StepRequested(Event):
    """Promise a step, at which the rank then waits for a `Control`; the reply is `StepPromised`."""

    kind = "step-wanted"
    number: int
    """Identifies the request; the reply carries the same number."""
    action: str
    """That of the `Control` that follows. A rank that can't do it says why."""
    values: Mapping[str, float] = field(default_factory=dict)
    """As in `Control`."""


@dataclass(frozen=True)
class StepPromised(Event):
    """The number of steps after which the rank waits, counted within its call. A rank sends it."""

    kind = "step-promised"
    number: int
    step: int = -1
    """-1 if it can't do what is wanted, or runs nothing."""
    error: str = ""
    """Why it can't; empty if it runs nothing, and so does not take part."""


@dataclass(frozen=True)
class Control(Event):
    """Do something after this step. The reply is `Controlled`."""

    kind = "control"
    number: int
    action: str
    values: Mapping[str, float] = field(default_factory=dict)
    """What to tune: new values, by name."""
    step: int = -1
    """-1: at once."""


@dataclass(frozen=True)
class Controlled(Event):
    """A rank has done what a `Control` says, or says why it has not.

    The driver records the first such report for the job.
    """

    kind = "controlled"
    number: int
    action: str
    step: int = -1
    """After how many steps of the training; -1 if that is not known."""
    error: str = ""
    detail: str = ""
    """The path of the checkpoint; the epoch after which the training ends."""
    before: Mapping[str, float] = field(default_factory=dict)
    """What was tuned: the values before, by name."""
    values: Mapping[str, float] = field(default_factory=dict)
    """And after."""
    at: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True)
class ControlsChanged(Event):
    """What can be done to the training, as its ranks see it. The driver records it for the job."""

    kind = "controls"
    refusals: Mapping[str, str]
    """By action: why it can't be done; empty if it can."""


@dataclass(frozen=True)
class TunableChanged(Event):
    """A value that can be changed while the training runs. The driver records it for the job."""

    kind = "tunable"
    name: str
    value: float
    low: float | None = None
    """The least value; `None`: any."""
    high: float | None = None
    whole: bool = False
    """Whether it is an integer."""


class CountedOptimizer:
    """Which optimizer the steps of a loop are counted by, if it has several, wherever they are counted.

    It is the first that steps; another once that one steps twice without the first.
    """

    __slots__ = ("_counted", "_other")

    def __init__(self) -> None:
        self._counted = self._other = 0
        """The `id` of the optimizer whose steps are counted, and of another that has stepped since."""

    def ends_step(self, optimizer: object) -> bool:
        """Whether a step of the loop ends, now that this optimizer has stepped."""
        key = id(optimizer)
        if key != self._counted:
            if self._counted and key != self._other:
                self._other = key
                return False
            self._counted = key
        self._other = 0
        return True
