"""Random states: seeding them all at once, and making them equal on all ranks."""

from __future__ import annotations

import importlib.util
import operator
import os
import random
from collections.abc import Iterable

import torch
import torch.distributed as dist

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Seeded
from notebook_accel.train.options.enums import RNGType
from notebook_accel.train.ranks.state import PartialState

_NUMPY_SEEDS = 2**32


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seeds the random generators of Python, NumPy, and torch, on all devices.

    Args:
        seed: The seed.
        device_specific: Whether each rank gets a seed of its own: `seed` plus its number.
        deterministic: Whether torch uses deterministic algorithms from now on, and refuses operations that have none.

    Raises:
        ConfigurationError: The seed is not a whole number.
    """
    try:
        seed = operator.index(seed)
    except TypeError:
        raise ConfigurationError(f"set_seed(seed={seed!r}): give a whole number, such as 42") from None
    events.emit(Seeded(seed))
    if device_specific:
        seed += PartialState().process_index
    random.seed(seed)
    if importlib.util.find_spec("numpy") is not None:
        import numpy as np

        np.random.seed(seed % _NUMPY_SEEDS)
    torch.manual_seed(seed)
    if _on_xla():
        from notebook_accel.train.ranks import xla_group

        xla_group.seed(seed)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, torch refuses to call cuBLAS
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def synchronize_rng_state(rng_type: RNGType | str, generator: torch.Generator | None = None) -> None:
    """Copies one random state of rank 0 to all ranks; every rank has to call it.

    Args:
        rng_type: Which state.
        generator: The generator that `RNGType.GENERATOR` means.

    Raises:
        ConfigurationError: There is no such state.
    """
    match RNGType.of(rng_type, "rng_type"):
        case RNGType.TORCH:
            torch.set_rng_state(_from_first(torch.get_rng_state()))
        case RNGType.CUDA:
            torch.cuda.set_rng_state(_from_first(torch.cuda.get_rng_state()))
        case RNGType.GENERATOR:
            if generator is None:
                raise ConfigurationError("rng_type='generator' needs the generator: pass generator=...")
            generator.set_state(_from_first(generator.get_state()))


def synchronize_rng_states(rng_types: Iterable[RNGType | str], generator: torch.Generator | None = None) -> None:
    """Copies random states of rank 0 to all ranks; every rank has to call it.

    Args:
        rng_types: Which states, such as `["torch", "cuda"]`.
        generator: The generator that `RNGType.GENERATOR` means.

    Raises:
        ConfigurationError: There is no such state.
    """
    for rng_type in rng_types:
        synchronize_rng_state(rng_type, generator)


def number_of_first(number: int) -> int:
    """Returns the number that rank 0 has passed; every rank has to call it."""
    return int(_from_first(torch.tensor([number])).item())


def message_device() -> torch.device:
    """The device for small messages between ranks: the CPU, if the group has a backend for it."""
    return torch.device("cpu") if "cpu:" in dist.get_backend_config() else PartialState().device


def _on_xla() -> bool:
    state = PartialState.settled()
    return state is not None and state.backend == "xla"


def _from_first(state: torch.Tensor) -> torch.Tensor:
    if not (dist.is_initialized() or _on_xla()):
        return state
    if _on_xla():
        first: torch.Tensor = PartialState().exchange.all_gather_objects(state)[0]
        return first
    sent = state.to(message_device())
    dist.broadcast(sent, 0)
    return sent.cpu()
