"""Where a process is among the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Place:
    """Where this process is among the ranks."""

    device: torch.device
    backend: str | None
    """How the ranks talk: `gloo`, `nccl`, `xla`; `None` for one rank alone."""
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    debug: bool
