"""What one attempt of a launch, or one call on ranks that live on, comes to."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from notebook_accel.launch.job.stacks import StacksByRank


class Ending(enum.Enum):
    """How an attempt went."""

    RETURNED = "returned"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"


@dataclass
class Attempt:
    """What an attempt, or one call on ranks that live on, leaves."""

    ending: Ending
    stacks: list[str]
    """What each rank that has crashed has written to its stacks file."""
    told: StacksByRank
    """Where the ranks were when time ran out."""
    oom_killed: bool
    disturbed: bool
    """Ranks were made to stop: what they were in the middle of together is undone on some of them."""
