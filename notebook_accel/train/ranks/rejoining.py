"""The process group of ranks that live on: joined at the start, and joined anew after it was torn.

What ends early on one rank leaves the others in the middle of a collective, or one behind. The group is left then, and
another is joined, in another place of the same store. Its generation tells it from the one before.
"""

from __future__ import annotations

import datetime

import torch
import torch.distributed as dist

from notebook_accel.train.ranks import environment, topology

_FOR_EVER = datetime.timedelta(days=30)
"""A collective may wait as long as its user does, for instance in a debugger."""


def join(generation: int) -> torch.device:
    """Joins the process group of a generation; returns the device of this rank."""
    topology.begin_generation(generation)
    told = environment.read()
    found = topology.join(told, cpu=False, options={} if told.device == "tpu" else {"timeout": _FOR_EVER})
    if not dist.is_initialized() and found.backend != "xla":  # it is the only rank
        topology.join_alone(found.device)
    return found.device


def leave() -> None:
    """Leaves the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def operations() -> int:
    """How many collective operations this rank has begun; ranks that stand at different ones can't meet any more."""
    if not dist.is_initialized():
        return -1
    begun: int = dist.group.WORLD._get_sequence_number_for_group()  # type: ignore[union-attr]
    return begun
