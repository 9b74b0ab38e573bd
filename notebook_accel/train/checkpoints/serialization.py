"""Writes files that torch can read back with `weights_only=True`, so that they cannot run code."""

from __future__ import annotations

import codecs
import io
import os
from pathlib import Path
from typing import IO, Any

import torch

from notebook_accel.errors import ConfigurationError
from notebook_accel.rehearsal_flag import rehearsing
from notebook_accel.train.checkpoints import weights
from notebook_accel.train.checkpoints.folders import hidden, staged_files
from notebook_accel.train.ranks.state import PartialState


def is_writer(on_each_node: bool) -> bool:
    """Whether this rank writes what is equal on all ranks: the first of each node, or of all nodes."""
    state = PartialState()
    return state.is_local_main_process if on_each_node else state.is_main_process


def save(
    obj: Any, f: str | os.PathLike[str] | IO[bytes], save_on_each_node: bool = False, safe_serialization: bool = False
) -> None:
    """Writes an object to a file on the main rank; other ranks do nothing.

    Args:
        obj: A dict of tensors for safetensors; otherwise anything that `torch.save` accepts.
        f: The file, which is written atomically; or an open one.
        save_on_each_node: Whether one rank of each node writes it, for folders that the nodes do not share.
        safe_serialization: Whether to write safetensors rather than pickle.

    Raises:
        ConfigurationError: An open file was given for safetensors.
    """
    if not is_writer(save_on_each_node) or rehearsing():
        return
    if not isinstance(f, (str, os.PathLike)):
        if safe_serialization:
            raise ConfigurationError(f"safetensors are written to a path, not to an open file: {f!r:.80}")
        torch.save(obj, f)
        return
    unfinished = hidden(Path(f), "unfinished")
    with staged_files([Path(f)]):
        if safe_serialization:
            weights.write(obj, unfinished, safe_serialization=True)
        else:
            weights.write_pickled(obj, unfinished)


def load(f: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """`torch.load` with `weights_only=True`, which also accepts NumPy arrays.

    Raises:
        ConfigurationError: The file contains objects that could run code.
    """
    weights_only = kwargs.pop("weights_only", True)
    with torch.serialization.safe_globals(_numpy_globals() if weights_only else []):
        try:
            return torch.load(f, map_location=map_location, weights_only=weights_only, **kwargs)
        except Exception as error:
            if not weights_only or "Weights only load failed" not in str(error):
                raise
            raise ConfigurationError(
                f"{f} contains objects that could run code when they are read. If you trust its author, call "
                f"torch.serialization.add_safe_globals([TheirClass]) first. torch says: {error}"
            ) from error


def write_safe(obj: Any, path: Path, owner: str) -> None:
    """Writes a state that can be read back with `load`.

    Raises:
        ConfigurationError: It could not be read back; this shows now rather than when the state is needed.
    """
    weights.write_pickled(obj, path)
    _refuse_unsafe(path, owner)


def refuse_unsafe(obj: Any, owner: str) -> None:
    """Does what `write_safe` does, but only in memory.

    Raises:
        ConfigurationError: The state could not be read back.
    """
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    _refuse_unsafe(file, owner)


def _refuse_unsafe(file: Any, owner: str) -> None:
    unsafe = set(torch.serialization.get_unsafe_globals_in_checkpoint(file)) - _names(_numpy_globals())
    if unsafe:
        raise ConfigurationError(
            f"the state of {owner} contains {', '.join(sorted(unsafe))}, which could not be read back, because "
            "such objects can run code. Make its state_dict() return numbers, texts, tensors, arrays, lists and dicts, "
            "or allow the class with torch.serialization.add_safe_globals([TheClass])."
        )


def _numpy_globals() -> list[Any]:
    """The globals in pickled NumPy arrays and numbers, under the names of NumPy 1 and 2."""
    try:
        import numpy as np
    except ImportError:
        return []
    core = np._core if hasattr(np, "_core") else np.core
    made_by = [core.multiarray._reconstruct, core.multiarray.scalar]
    modules = ("numpy.core.multiarray", "numpy._core.multiarray")
    named = [(each, f"{module}.{each.__name__}") for each in made_by for module in modules]
    dtypes = [each for each in vars(np.dtypes).values() if isinstance(each, type)] if hasattr(np, "dtypes") else []
    return [*named, np.ndarray, np.dtype, codecs.encode, *dtypes]


def _names(allowed: list[Any]) -> set[str]:
    return {each[1] if isinstance(each, tuple) else f"{each.__module__}.{each.__qualname__}" for each in allowed}
