"""What the processes of a TPU group inherit from their supervisor."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Slot:
    """What a rank has of its own, whichever thread it becomes."""

    rank: int
    environment: Mapping[str, str]
    """Variables that are this rank's alone."""
    channel: int
    out: int
    err: int
    """Descriptors."""


@dataclass(frozen=True)
class TpuGroup:
    """All that the ranks' processes inherit; torch_xla itself hands them nothing but their ordinal."""

    slots: Mapping[int, Slot]
    heartbeat: float
    reports: socket.socket
    """Where each process tells which ranks it has, and how they ended; a packet each."""
    single: bool
    """Whether there is one rank, in the supervisor itself: on one chip, or on all of them with SPMD."""
    process: list[Any] = field(default_factory=list)
    """The process of ranks that this process is, once it is one."""
