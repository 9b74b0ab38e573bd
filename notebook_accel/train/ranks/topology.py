"""How a process finds its place among the ranks: its device, and the group that it joins."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import rendezvous

from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.train.ranks.environment import Environment
from notebook_accel.train.ranks.place import Place


def join(told: Environment, cpu: bool, options: dict[str, Any]) -> Place:
    """Joins the group of the ranks if there are others, and takes this rank's device."""
    if told.device == "tpu":
        return _on_tpu(told, cpu, options)
    device = _device(told, cpu)
    joined = dist.is_available() and dist.is_initialized()
    if not joined and told.world_size == 1:
        return Place(device, None, 0, 0, 1, 1, told.debug)
    if not joined:
        backend = options.pop("backend", None) or told.backend
        given = {name: value for name, value in options.items() if value is not None}
        where = {"rank": told.rank, "world_size": told.world_size}
        dist.init_process_group(backends(device, backend), **{**where, **_meeting(told), **given})
    backend = "nccl" if "nccl" in dist.get_backend() and device.type == "cuda" else "gloo"
    size = dist.get_world_size()
    return Place(device, backend, dist.get_rank(), told.local_rank, size, told.local_world_size, told.debug)


def _on_tpu(told: Environment, cpu: bool, options: dict[str, Any]) -> Place:
    """torch_xla has brought the ranks together already."""
    if cpu:
        raise ConfigurationError("cpu=True was asked for, on a rank of a TPU: launch with device='cpu' instead")
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ConfigurationError(
            f"{', '.join(given)}: these are for torch.distributed, which ranks of a TPU do without; leave them out"
        )
    from notebook_accel.train.ranks import xla_group

    return xla_group.place(told.debug)


def join_alone(device: torch.device) -> None:
    """Makes a group of one, for what works on groups only."""
    dist.init_process_group(backends(device, None), store=HashStore(), rank=0, world_size=1)


_JOINS = 1_000_000
"""More than any rank joins within a generation."""
_joined = 0
"""How often this process has joined the group of its launch."""


def begin_generation(number: int) -> None:
    """From now on the ranks meet in places of their own, however often each has joined before."""
    global _joined
    _joined = _JOINS * number


def _meeting(told: Environment) -> dict[str, Any]:
    """Where to meet: where the environment says, except that ranks that have left their group meet in a new place."""
    global _joined
    _joined += 1
    if _joined == 1:
        return {}
    store, _, _ = next(rendezvous("env://", told.rank, told.world_size))
    # What they told each other the first time is still in the store, and would be taken for news.
    return {"store": PrefixStore(f"again/{_joined}", store)}


def _device(told: Environment, cpu: bool) -> torch.device:
    kind = "cpu" if cpu or told.cpu else told.device
    if kind is None:
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        if kind == "cpu" and told.world_size == 1 and torch.backends.mps.is_available():
            kind = "mps"
    if kind != "cuda":
        return torch.device(kind)
    found = torch.cuda.device_count()
    if not found:
        raise HardwareError("this rank was started for a GPU, and torch finds none: pass cpu=True to do without")
    device = torch.device("cuda", told.local_rank % found)
    torch.cuda.set_device(device)
    return device


def backends(device: torch.device, backend: str | None) -> str:
    """What `init_process_group` takes: on GPUs also gloo, for what ranks say about tensors that stay where they are."""
    if backend is None:
        backend = "nccl" if device.type == "cuda" else "gloo"
    return "cpu:gloo,cuda:nccl" if backend == "nccl" else backend
