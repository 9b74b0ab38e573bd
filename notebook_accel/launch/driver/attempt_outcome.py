"""The outcome of one attempt of a launch, or of one call on persistent ranks."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from notebook_accel.launch.job.stacks import StacksByRank


class Ending(enum.Enum):
    """How an attempt ended."""

    RETURNED = "returned"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


@dataclass
class AttemptOutcome:
    """The result of an attempt, or of one call on persistent ranks."""

    ending: Ending
    stacks_at_timeout: StacksByRank
    """The ranks' stacks when the timeout passed."""
    oom_killed: bool
    escalated: bool
    """Ranks were signalled, so a collective that they were in may have completed on some but not on others."""
