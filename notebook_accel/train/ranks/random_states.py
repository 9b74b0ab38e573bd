"""The random states of a rank, as a checkpoint keeps them."""

from __future__ import annotations

import pickle
import random
import zlib
from typing import Any

import torch

_NUMPY_SEEDS = 2**32


def capture(device: torch.device) -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, on the host and on this rank's device."""
    return {**capture_host(), **_capture_device(device)}


def digest(device: torch.device) -> int:
    """A checksum of what `capture` finds, in a fraction of its time."""
    numpy = _numpy()
    _, keys, *rest = numpy.random.get_state() if numpy is not None else ("", b"")
    _, internal, gauss = random.getstate()
    # Of numbers alone, since other hashes differ between processes.
    states = hash(
        (internal, gauss or 0.0, zlib.crc32(keys), *rest, zlib.crc32(torch.get_rng_state().numpy().tobytes()))
    )
    return zlib.crc32(pickle.dumps(_capture_device(device)), states & 0xFFFFFFFF)


def _capture_device(device: torch.device) -> dict[str, Any]:
    states: dict[str, Any] = {}
    if device.type == "cuda":
        # One state per device, as in Accelerate's files. Reading those of other ranks' devices would create a CUDA
        # context on each.
        states["torch_cuda_manual_seed"] = [torch.cuda.get_rng_state(device)] * torch.cuda.device_count()
    elif device.type == "xla":
        from notebook_accel.train.ranks import xla_group

        states["xm_seed"] = xla_group.random_state()
    elif device.type == "mps":
        states["torch_mps_manual_seed"] = torch.mps.get_rng_state()
    return states


def restore(states: dict[str, Any], device: torch.device) -> None:
    """Sets the generators to what `capture` found."""
    restore_host(states)
    if device.type == "cuda" and "torch_cuda_manual_seed" in states:
        torch.cuda.set_rng_state(_of_device(states["torch_cuda_manual_seed"], device), device)
    elif device.type == "xla" and "xm_seed" in states:
        from notebook_accel.train.ranks import xla_group

        xla_group.seed(states["xm_seed"])
    elif device.type == "mps" and "torch_mps_manual_seed" in states:
        torch.mps.set_rng_state(states["torch_mps_manual_seed"])


def capture_host() -> dict[str, Any]:
    """The states of the global generators on the host: Python's, NumPy's, and torch's."""
    states: dict[str, Any] = {"random_state": random.getstate(), "torch_manual_seed": torch.get_rng_state()}
    numpy = _numpy()
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy_random_seed"] = (name, keys.tolist(), *rest)
    return states


def restore_host(states: dict[str, Any]) -> None:
    """Sets the global generators on the host to what `capture_host` found."""
    random.setstate(states["random_state"])
    torch.set_rng_state(states["torch_manual_seed"])
    numpy = _numpy()
    if numpy is not None and "numpy_random_seed" in states:
        numpy.random.set_state(states["numpy_random_seed"])


def is_generator(value: object) -> bool:
    """Whether an object is a random generator of Python, NumPy, or torch whose state can be read and set."""
    if isinstance(value, torch.Generator) or (
        isinstance(value, random.Random) and not isinstance(value, random.SystemRandom)
    ):
        return True
    numpy = _numpy()
    return numpy is not None and isinstance(value, (numpy.random.Generator, numpy.random.RandomState))


def state_of(generator: Any) -> Any:
    """The state of one that `is_generator` recognizes, in types that a checkpoint can hold."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    return _bits(generator).state


def set_state_of(generator: Any, state: Any) -> None:
    """Sets the state of a generator to what `state_of` found."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(state)
    else:
        _bits(generator).state = state


def _bits(generator: Any) -> Any:
    """What holds the state of one of NumPy's generators."""
    return getattr(generator, "bit_generator", None) or generator._bit_generator


def derive(states: dict[str, Any], rank: int, device: torch.device) -> None:
    """Seeds the generators of a rank for which a checkpoint, saved with fewer ranks, has no states.

    Args:
        states: Those of rank 0, from which each such rank derives a seed of its own.
        rank: This rank's number.
        device: Its device.
    """
    source = torch.Generator()
    source.set_state(states["torch_manual_seed"])
    seed(int(torch.randint(2**32, (rank + 1,), generator=source)[rank]), on_xla=device.type == "xla")


def seed(number: int, *, on_xla: bool) -> None:
    """Seeds the generators of Python, NumPy, and torch; also that of torch_xla if this rank is on such a device."""
    random.seed(number)
    numpy = _numpy()
    if numpy is not None:
        numpy.random.seed(number % _NUMPY_SEEDS)
    torch.manual_seed(number)  # of all devices
    if on_xla:
        from notebook_accel.train.ranks import xla_group

        xla_group.seed(number)


def _of_device(states: list[torch.Tensor], device: torch.device) -> torch.Tensor:
    """The state of this device; the last one if the checkpoint comes from a run with fewer devices."""
    return states[min(device.index or 0, len(states) - 1)]


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
