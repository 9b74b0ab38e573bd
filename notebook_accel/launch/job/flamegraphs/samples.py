"""A request for samples of the ranks' stacks, and what answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from notebook_accel.events import Sampled

SamplesByRank = Mapping[int, Sampled]
"""The samples of each rank that reported some, by its index in the job."""


@dataclass(frozen=True)
class SampleRequest:
    """What to sample."""

    seconds: float
    rate: float
    """Samples per second."""
    member: int | None = None
    """The index of the only rank to sample; `None` for all."""
