"""Random states: seeding them all at once, and making them equal on all ranks."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterable

import torch
import torch.distributed as dist

from notebook_accel import events, rank_local
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Seeded
from notebook_accel.train.options.enums import RNGType
from notebook_accel.train.ranks import random_states
from notebook_accel.train.ranks.collective_check import user_frame
from notebook_accel.train.ranks.communicator import all_gather
from notebook_accel.train.ranks.mesh import Ranks
from notebook_accel.train.ranks.state import AcceleratorState, PartialState


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seeds the random generators of Python, NumPy, and torch, on all devices.

    Args:
        seed: The seed.
        device_specific: Whether each rank gets a seed of its own: `seed` plus its number. Ranks that an `Accelerator`
            gives the same samples, since they share layers or sequences, get the same seed.
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
        seed += _number_of_share()
    random_states.seed(seed, on_xla=_on_xla())
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
            torch.set_rng_state(of_first(torch.get_rng_state()))
        case RNGType.CUDA:
            torch.cuda.set_rng_state(of_first(torch.cuda.get_rng_state()))
        case RNGType.GENERATOR:
            if generator is None:
                raise ConfigurationError("rng_type='generator' needs the generator: pass generator=...")
            generator.set_state(of_first(generator.get_state()))


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


def share_random_states(peers: Ranks, digest: int = 0, *, expected: bool = True) -> None:
    """Makes ranks that get the same samples draw the same random numbers from here on; all of them call it.

    Args:
        peers: These ranks.
        digest: A checksum of the samples that this rank has read last.
        expected: Whether the states may differ; otherwise, the first time that they do, there is a warning.

    Raises:
        ConfigurationError: The samples differ.
    """
    if peers.size == 1:
        return
    device = PartialState().device
    own = torch.tensor([random_states.digest(device), digest], device=message_device())
    every = own.new_empty(peers.size * 2)
    all_gather(every, own, group=peers.group)
    states, samples = (set(column) for column in every.view(-1, 2).T.tolist())
    if len(samples) > 1:
        raise ConfigurationError(
            "ranks that share layers or sequences need the same samples, but have read different ones: something that "
            "chooses or changes the samples draws from a generator that is seeded differently on these ranks, or "
            "depends on the rank. Seed it with the same number on all of them"
        )
    if len(states) == 1:
        return
    if not expected:
        _warn_of_different_draws()
    random_states.restore(
        PartialState().communicator.all_gather_objects(random_states.capture(device), peers.group)[0], device
    )


def _warn_of_different_draws() -> None:
    frame = user_frame()
    warnings.warn_explicit(
        "ranks that share layers or sequences have to draw the same random numbers, but one has drawn others than its "
        "peers since the last batch. If the model has drawn some too, such as for dropout, the result of this step is "
        "wrong. Draw on all ranks, or from a generator of your own. From here on, all have the first rank's states",
        UserWarning,
        "<unknown>" if frame is None else frame.f_code.co_filename,
        0 if frame is None else frame.f_lineno,
        registry=rank_local.space().setdefault(f"{__name__}.warned", {}),
    )


def number_of_first(number: int) -> int:
    """Returns the number that rank 0 has passed; every rank has to call it."""
    high, low = of_first(torch.tensor([number >> 32, number % 2**32])).tolist()  # a seed may have 64 bits
    return int((high << 32) + low)


def message_device() -> torch.device:
    """The device for small messages between ranks: the CPU, if the group has a backend for it."""
    return torch.device("cpu") if "cpu:" in dist.get_backend_config() else PartialState().device


def _number_of_share() -> int:
    """The number of this rank's share of the samples, as far as it is known."""
    partial, whole = PartialState(), AcceleratorState.settled()
    return whole.sharing.data.rank if whole is not None and whole.partial is partial else partial.process_index


def _on_xla() -> bool:
    state = PartialState.settled()
    return state is not None and state.backend == "xla"


def of_first(state: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that rank 0 has passed, of the same shape on all ranks; every rank has to call it."""
    if not (dist.is_initialized() or _on_xla()):
        return state
    if _on_xla():
        first: torch.Tensor = PartialState().communicator.all_gather_objects(state)[0]
        return first
    sent = state.to(message_device())
    dist.broadcast(sent, 0)
    return sent.cpu()
