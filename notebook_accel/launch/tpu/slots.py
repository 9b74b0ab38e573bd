"""The slots of a TPU group's ranks, which their processes inherit from the supervisor."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Slot:
    """The resources of one rank, regardless of its thread."""

    rank: int
    environment: Mapping[str, str]
    """Variables that are this rank's alone."""
    channel: int
    out: int
    err: int
    """Descriptors."""


@dataclass(frozen=True)
class TpuGroup:
    """All that the ranks' processes inherit. torch_xla itself passes them only their ordinal."""

    slots: Mapping[int, Slot]
    heartbeat: float
    reports: socket.socket
    """Where each process reports which ranks it has, and how they ended; a packet each."""
    single: bool
    """Whether there is one rank, in the supervisor itself: on one chip, or on all of them with SPMD."""
    process: list[Any] = field(default_factory=list)
    """In a process of ranks, the one `Process` that its threads share; empty in the supervisor."""
