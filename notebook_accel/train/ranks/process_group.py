"""How a process becomes a rank: it selects its device, joins the process group, and knows its numbers there.

Persistent ranks join at the start, and again after an interrupt broke the group: code that ends early on one rank
leaves the others in the middle of a collective, or one collective behind, and gloo cannot recover from either. So the
ranks leave the group and join another under a new prefix of the same store, numbered by its generation.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import rendezvous

from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import ACCELERATORS
from notebook_accel.store_barrier import await_all
from notebook_accel.train.ranks.environment import Environment
from notebook_accel.train.ranks.environment import read as read_environment


@dataclass(frozen=True)
class Membership:
    """This rank's device and its membership in the process group."""

    device: torch.device
    backend: str | None
    """`gloo`, `nccl` or `xla`; `None` for a single rank without a group."""
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    debug: bool


def join(environment: Environment, cpu: bool, options: dict[str, Any]) -> Membership:
    """Selects this rank's device, and joins the process group if there are other ranks."""
    if environment.device == "tpu":
        return _on_tpu(environment, cpu, options)
    device = _device(environment, cpu)
    joined = dist.is_available() and dist.is_initialized()
    if not joined and environment.world_size == 1:
        return Membership(device, None, 0, 0, 1, 1, environment.debug)
    if not joined:
        backend = options.pop("backend", None) or environment.backend
        given = {name: value for name, value in options.items() if value is not None}
        options = {"rank": environment.rank, "world_size": environment.world_size, **_rendezvous_options(environment)}
        dist.init_process_group(backend_config(device, backend), **{**options, **given})
        # A rank that ended now would make those fail that are still connecting to it.
        await_all(dist.distributed_c10d._get_default_store(), "joined", dist.get_world_size())
    backend = "nccl" if "nccl" in dist.get_backend() and device.type == "cuda" else "gloo"
    size = dist.get_world_size()
    local = {"local_rank": environment.local_rank, "local_world_size": environment.local_world_size}
    return Membership(device, backend, dist.get_rank(), world_size=size, debug=environment.debug, **local)


def _on_tpu(environment: Environment, cpu: bool, options: dict[str, Any]) -> Membership:
    """The membership of a rank on a TPU, which has no process group to join: torch_xla connected the ranks at start."""
    if cpu:
        raise ConfigurationError("cpu=True was requested on a rank of a TPU: launch with device='cpu' instead")
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ConfigurationError(
            f"{', '.join(given)}: these are for torch.distributed, which ranks of a TPU do not use; leave them out"
        )
    from notebook_accel.train.ranks import xla_group

    return Membership(xla_group.device(), "xla", *xla_group.numbers(), environment.debug)


def require_group(device: torch.device) -> None:
    """Initializes a process group of this rank alone if there is none, for APIs that require one, such as FSDP2."""
    if not dist.is_initialized():
        dist.init_process_group(backend_config(device, None), store=HashStore(), rank=0, world_size=1)


_JOINS_PER_GENERATION = 1_000_000
"""More than any rank joins within a generation, so that the prefixes of two generations never meet."""
_times_joined = 0
"""How often this process has joined the process group of its launch."""


def _rendezvous_options(environment: Environment) -> dict[str, Any]:
    """Arguments for the rendezvous: none the first time (`env://`); a fresh prefix in the store for every later one."""
    global _times_joined
    _times_joined += 1
    if _times_joined == 1:
        return {}
    store, _, _ = next(rendezvous("env://", environment.rank, environment.world_size))
    # The store outlives the group: the addresses from the first rendezvous are still in it, and gloo would connect to
    # those instead of waiting for new ones.
    return {"store": PrefixStore(f"again/{_times_joined}", store)}


def _device(environment: Environment, cpu: bool) -> torch.device:
    if environment.torch_device is not None and not cpu:
        return _chosen_device(environment.torch_device)
    kind = "cpu" if cpu or environment.cpu else environment.device
    if kind is None:
        there = torch.accelerator.current_accelerator(check_available=True)
        usable = {row.torch_type for row in ACCELERATORS if row.device}
        kind = there.type if there is not None and there.type in usable else "cpu"
        if kind == "mps" and environment.world_size > 1:
            kind = "cpu"  # of Apple's GPU, there is one
    if kind != "cuda":
        return torch.device(kind)
    found = torch.cuda.device_count()
    if not found:
        raise HardwareError("this rank was started for a GPU, but torch finds none: pass cpu=True to use the CPU")
    device = torch.device("cuda", environment.local_rank % found)
    torch.cuda.set_device(device)
    return device


def _chosen_device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(f"ACCELERATE_TORCH_DEVICE={name!r} is not a device of torch: {error}") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise HardwareError(f"ACCELERATE_TORCH_DEVICE={name!r} needs a GPU, but torch finds none: unset it")
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    return device


def backend_config(device: torch.device, backend: str | None) -> str:
    """The `backend` of `init_process_group`: on GPUs gloo too, for the shapes and objects that never reach a GPU."""
    if backend is None:
        backend = "nccl" if device.type == "cuda" else "gloo"
    return "cpu:gloo,cuda:nccl" if backend == "nccl" else backend


_NO_TIMEOUT = datetime.timedelta(days=30)
"""A collective may wait for as long as its user does, for instance in a debugger; torch takes no infinite timeout."""


def rejoin(generation: int) -> torch.device:
    """Joins the process group of a generation; returns the device of this rank.

    Its prefix in the store differs from those of other generations, however often each rank has joined before.
    """
    global _times_joined
    _times_joined = _JOINS_PER_GENERATION * generation
    rank_environ = read_environment()
    options = {} if rank_environ.device == "tpu" else {"timeout": _NO_TIMEOUT}
    found = join(rank_environ, cpu=False, options=options)
    if found.backend != "xla":
        require_group(found.device)
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
