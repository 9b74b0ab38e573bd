"""The process group of persistent ranks: joined at the start, and joined again after an interrupt broke it.

Code that ends early on one rank leaves the others in the middle of a collective, or one collective behind; gloo cannot
recover from either. So the ranks leave the group and join another under a new prefix of the same store, numbered by its
generation.
"""

from __future__ import annotations

import datetime

import torch
import torch.distributed as dist

from notebook_accel.train.ranks import environment, process_group

_NO_TIMEOUT = datetime.timedelta(days=30)
"""A collective may wait for as long as its user does, for instance in a debugger; torch takes no infinite timeout."""


def join(generation: int) -> torch.device:
    """Joins the process group of a generation; returns the device of this rank."""
    process_group.begin_generation(generation)
    rank_environ = environment.read()
    options = {} if rank_environ.device == "tpu" else {"timeout": _NO_TIMEOUT}
    found = process_group.join(rank_environ, cpu=False, options=options)
    if not dist.is_initialized() and found.backend != "xla":  # it is the only rank
        process_group.init_group_of_one(found.device)
    return found.device


def leave() -> None:
    """Leaves the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def operations() -> int:
    """How many collectives this rank has started, or -1 without a group; ranks that differ can no longer match."""
    if not dist.is_initialized():
        return -1
    begun: int = dist.group.WORLD._get_sequence_number_for_group()  # type: ignore[union-attr]
    return begun
