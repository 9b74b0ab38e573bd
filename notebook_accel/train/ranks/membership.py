"""The membership of a rank that has joined: its device, its backend, and its numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Membership:
    """This rank's device and its membership in the process group; made by `process_group.join`."""

    device: torch.device
    backend: str | None
    """`gloo`, `nccl` or `xla`; `None` for a single rank without a group."""
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    debug: bool
