"""Writes and reads model weights: safetensors, split into several files with an index if a model is large.

    model.safetensors                                        a model that fits one file
    model-00001-of-00003.safetensors … + model.safetensors.index.json   one that does not
    pytorch_model.bin …                                      the same, pickled, with `safe_serialization=False`

A tensor that a model uses under several names is written once. Reading gives every name its value again.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch

from notebook_accel import exports
from notebook_accel.errors import ConfigurationError
from notebook_accel.rehearsal_flag import rehearsing
from notebook_accel.train.checkpoints.folders import hidden, staged_files

SAFE_MODEL_NAME = "model"
MODEL_NAME = "pytorch_model"
SAFE_WEIGHTS_NAME = f"{SAFE_MODEL_NAME}.safetensors"
WEIGHTS_NAME = f"{MODEL_NAME}.bin"
SAFE_WEIGHTS_INDEX_NAME = f"{SAFE_WEIGHTS_NAME}.index.json"
WEIGHTS_INDEX_NAME = f"{WEIGHTS_NAME}.index.json"
SAFE_WEIGHTS_PATTERN_NAME = f"{SAFE_MODEL_NAME}{{suffix}}.safetensors"
WEIGHTS_PATTERN_NAME = f"{MODEL_NAME}{{suffix}}.bin"

_PROBE = bytes(2**16)
_log = logging.getLogger(__name__)
State: TypeAlias = Mapping[str, torch.Tensor]
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def save_model(
    state: State,
    save_directory: str | os.PathLike[str],
    max_shard_size: int | str = "10GB",
    safe_serialization: bool = True,
) -> None:
    """Writes a model's weights into a folder, replacing existing weights.

    Args:
        state: The full state dict.
        save_directory: The folder, which is created if it does not exist. Its other files are kept.
        max_shard_size: The maximum size of one file, in bytes or as a text such as `"5GB"` or `"512MiB"`. A single
            larger tensor gets its own file.
        safe_serialization: Whether to write safetensors rather than pickle.

    Raises:
        ConfigurationError: The folder is a file, the size is not valid, or a value cannot be written in this format.
    """
    if rehearsing():
        return
    folder = Path(save_directory)
    if folder.is_file():
        raise ConfigurationError(
            f"save_directory={str(folder)!r} is a file. Give the folder to write the weights into."
        )
    shards = _split(_distinct(state) if safe_serialization else dict(state), parse_size(max_shard_size))
    pattern = SAFE_WEIGHTS_PATTERN_NAME if safe_serialization else WEIGHTS_PATTERN_NAME
    names = [pattern.format(suffix=_suffix(number, len(shards))) for number in range(len(shards))]
    folder.mkdir(parents=True, exist_ok=True)
    written = dict(zip(names, shards, strict=True))
    index = folder / (SAFE_WEIGHTS_INDEX_NAME if safe_serialization else WEIGHTS_INDEX_NAME)
    with staged_files([*(folder / name for name in names), *([index] if len(shards) > 1 else [])]):
        for name, shard in written.items():
            write(shard, hidden(folder / name, "unfinished"), safe_serialization)
        if len(shards) > 1:
            hidden(index, "unfinished").write_text(_index(written), encoding="utf-8")
    if len(shards) == 1:
        index.unlink(missing_ok=True)
    _remove_others(folder, pattern, names)


def of_offloaded(model: torch.nn.Module) -> State | None:
    """The weights of a model that hooks of Accelerate's keep on the CPU or on disk; `None` if it has no such hooks."""
    if not any(getattr(getattr(module, "_hf_hook", None), "offload", False) for module in model.modules()):
        return None
    from accelerate.utils.modeling import get_state_dict_offloaded_model  # which has made the hooks

    found: State = get_state_dict_offloaded_model(model)
    return found


def write(state: State, path: Path, safe_serialization: bool) -> None:
    """Writes one file of weights."""
    if safe_serialization:
        from safetensors.torch import save_file

        # Other libraries check this metadata to recognize torch's tensors.
        save_file(_distinct(state), path, metadata={"format": "pt"})
    else:
        write_pickled(dict(state), path)


def write_pickled(obj: Any, path: Path) -> None:
    """Writes an object with `torch.save`.

    Raises:
        OSError: The disk is full, or refuses the file for another reason.
    """
    try:
        torch.save(obj, path)
    except RuntimeError:
        # torch's writer only says how far it came: "unexpected pos 81536 vs 81424". A disk that has refused the file
        # refuses more of it, too, and then says why.
        with open(path, "ab") as file:
            file.write(_PROBE)
            file.flush()
            os.fsync(file.fileno())
        raise


def files(source: str | os.PathLike[str]) -> list[Path]:
    """Finds the files of the weights at `source`, which is a file, an index, or a folder with either.

    Raises:
        ConfigurationError: There are no weights, or the index is not valid, or names files outside of its folder.
    """
    path = Path(source)
    if path.is_dir():
        candidates = (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME)
        found = [path / name for name in candidates if (path / name).is_file()]
        # Other libraries name their indices after their models, such as diffusion_pytorch_model.safetensors.index.json.
        found = found[:1] or sorted(path.glob("*.index.json"))
        if not found:
            raise ConfigurationError(
                f"{path} holds no weights: expected one of {', '.join(candidates)}, or another file *.index.json"
            )
        if len(found) > 1:
            names = ", ".join(each.name for each in found)
            raise ConfigurationError(f"{path} holds the indices of several models ({names}): pass the path of one")
        path = found[0]
    if not path.is_file():
        raise ConfigurationError(f"there are no weights at {path}: no such file or folder")
    if path.name.endswith(".index.json"):
        return [path.parent / name for name in _indexed(path)]
    return [path]


def _indexed(index: Path) -> list[str]:
    """The names of the files that an index lists, which lie beside it."""
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        names = sorted({os.fspath(name) for name in content.get("weight_map", content).values()})
        if not names:
            raise LookupError("it lists no files")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"{index} is not an index of weights ({type(error).__name__}: {error}): download or save the weights again"
        ) from error
    for name in names:
        # Someone else's index could otherwise name any file of this machine.
        if name in ("", "..") or Path(name).name != name:
            raise ConfigurationError(
                f"{index} names {name!r}, which is not in its folder. The files of a model must be next to their "
                "index: if you trust the author, move the file there and change its name in the index."
            )
    return names


def read(path: Path, device: str | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """The tensors of one file."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path, device=str(device)))
    return dict(torch.load(path, map_location=device, weights_only=True))


def load_checkpoint_in_model(
    model: torch.nn.Module,
    checkpoint: str | os.PathLike[str],
    device_map: dict[str, int | str | torch.device] | None = None,
    offload_folder: str | os.PathLike[str] | None = None,
    dtype: str | torch.dtype | None = None,
    offload_state_dict: bool = False,
    offload_buffers: bool = False,
    keep_in_fp32_modules: list[str] | None = None,
    offload_8bit_bnb: bool = False,
    strict: bool = False,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
) -> tuple[list[str], list[str]] | None:
    """Loads what `Accelerator.save_model` wrote into a model, one file at a time.

    Args:
        model: Loaded in place, on its current device unless `device_map` is given.
        checkpoint: The folder, or one of its files.
        device_map: The device of each part of the model, by its name. This and the arguments below, apart from
            `strict`, are those of Accelerate's function of the same name, which then does the work.
        offload_folder: Where the parts whose device is `disk` are kept.
        dtype: The type that the weights are converted to.
        offload_state_dict: Whether the weights of parts on the CPU pass through files, to save memory.
        offload_buffers: Whether the buffers of parts on the disk are kept there, too.
        keep_in_fp32_modules: Names of modules that stay in float32 if `dtype` is float16.
        offload_8bit_bnb: Whether parts on the disk are quantized to 8 bits, with bitsandbytes.
        strict: Whether missing or unexpected names are an error, rather than a warning.
        full_state_dict: Whether the files have whole tensors, rather than shards.
        broadcast_from_rank0: Whether only rank 0 reads the files; all ranks call it.

    Returns:
        The model's names that the files did not have, and the files' names that the model does not have; `None` if
        Accelerate's function has loaded the weights.

    Raises:
        ConfigurationError: There are no weights; with `strict`, they are not this model's; an argument has no effect
            without `device_map`; or Accelerate isn't installed.
        RuntimeError: A tensor's shape differs from the model's.
    """
    needs_map = {
        "offload_folder": offload_folder,
        "dtype": dtype,
        "offload_state_dict": offload_state_dict,
        "offload_buffers": offload_buffers,
        "keep_in_fp32_modules": keep_in_fp32_modules,
        "offload_8bit_bnb": offload_8bit_bnb,
    }
    if device_map is None and (idle := [name for name, value in needs_map.items() if value]):
        raise ConfigurationError(
            f"load_checkpoint_in_model({idle[0]}={needs_map[idle[0]]!r}) has no effect without device_map, since the "
            "weights are loaded into the model as it is, on its device and in its types: leave it out, or pass "
            'device_map={"": device}, too'
        )
    if device_map is not None or broadcast_from_rank0 or not full_state_dict:
        try:
            load = exports.load("load_checkpoint_in_model", "accelerate.utils.modeling")
        except ImportError as error:
            raise ConfigurationError(
                "load_checkpoint_in_model with device_map, full_state_dict, or broadcast_from_rank0 is Accelerate's, "
                "which is not installed: run pip install accelerate, or leave the argument out"
            ) from error
        load(
            model, checkpoint, device_map, **needs_map,
            strict=strict, full_state_dict=full_state_dict, broadcast_from_rank0=broadcast_from_rank0,
        )  # fmt: skip
        return None
    missing, unexpected = fill(model, (read(path) for path in files(checkpoint)), strict=strict, source=str(checkpoint))
    if unexpected:
        _log.warning("%s has %s, which the model doesn't have, so they were not used when it was loaded.", checkpoint,
                     _some(unexpected))  # fmt: skip
    if missing:
        _log.warning("%s has no %s, so these weights of the model stay as they are.", checkpoint, _some(missing))
    return missing, unexpected


def fill(
    model: torch.nn.Module, states: Iterator[dict[str, torch.Tensor]], *, strict: bool, source: str
) -> tuple[list[str], list[str]]:
    """Copies state dicts that together make up the model's into the model; see `load_checkpoint_in_model`."""
    own = model.state_dict()
    real_names = _names_by_bare_name(own)
    loaded: set[str] = set()
    unexpected: list[str] = []
    for state in states:
        renamed = {real_names.get(_bare(name), name): tensor for name, tensor in state.items()}
        model.load_state_dict(renamed, strict=False)
        loaded.update(renamed.keys() & own.keys())
        unexpected += sorted(renamed.keys() - own.keys())
    filled = {identity(own[name]) for name in loaded if isinstance(own[name], torch.Tensor)}
    missing = [
        name
        for name, value in own.items()
        if name not in loaded and not (isinstance(value, torch.Tensor) and identity(value) in filled)
    ]
    if strict and (missing or unexpected):
        raise ConfigurationError(
            f"the weights in {source} do not match this model: "
            + "; ".join(
                f"{what} {_some(names)}"
                for what, names in (("missing", missing), ("not in the model", unexpected))
                if names
            )
            + ". Build the model as it was when it was saved, or pass strict=False to load what fits."
        )
    return missing, unexpected


def identity(tensor: torch.Tensor) -> tuple[object, ...]:
    """A key that is equal for two tensors with the same elements in the same memory."""
    if tensor.numel() == 0 or tensor.layout != torch.strided or tensor.device.type in ("meta", "xla"):
        return (id(tensor),)
    storage = tensor.untyped_storage().data_ptr()
    return (tensor.device, storage, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)


def parse_size(size: int | str) -> int:
    """Bytes, from a number or a text like `"10GB"` (10 · 10⁹) or `"10GiB"` (10 · 2³⁰)."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?)?B?\s*", str(size).upper())
    bytes_ = int(float(match[1]) * _UNITS[match[2] or ""]) if match else 0
    if bytes_ < 1:
        raise ConfigurationError(f'max_shard_size={size!r} is not a size: write a number of bytes, "10GB" or "512MiB"')
    return bytes_


def _distinct(state: State) -> dict[str, torch.Tensor]:
    """Makes tensors that safetensors can write: on the CPU, each once, and none sharing another's memory."""
    result: dict[str, torch.Tensor] = {}
    seen: set[tuple[object, ...]] = set()
    storages: set[int] = set()
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            raise ConfigurationError(
                f"{name!r} is a {type(tensor).__name__}, but safetensors can contain only tensors. "
                "Pass safe_serialization=False."
            )
        if tensor.device.type == "meta":
            raise ConfigurationError(
                f"{name!r} is on the meta device, so it has no values to save. Load the model first."
            )
        if identity(tensor) in seen:
            continue
        seen.add(identity(tensor))
        storage = tensor.untyped_storage().data_ptr()
        shared = tensor.numel() > 0 and storage in storages
        storages.add(storage)
        plain = tensor.detach().cpu()
        result[name] = plain.clone(memory_format=torch.contiguous_format) if shared else plain.contiguous()
    return result


def _split(state: Mapping[str, torch.Tensor], limit: int) -> list[dict[str, torch.Tensor]]:
    """Splits a state into shards of at most `limit` bytes, in order; the names of one tensor stay together."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    used = 0
    home: dict[tuple[object, ...], dict[str, torch.Tensor]] = {}
    for name, value in state.items():
        key = identity(value) if isinstance(value, torch.Tensor) else (id(value),)
        size = 0 if key in home or not isinstance(value, torch.Tensor) else value.nbytes
        if size and used and used + size > limit:
            shards.append({})
            used = 0
        used += size
        home.setdefault(key, shards[-1])[name] = value
    return shards


def _index(written: Mapping[str, Mapping[str, torch.Tensor]]) -> str:
    distinct = {
        identity(value): value.nbytes
        for shard in written.values()
        for value in shard.values()
        if isinstance(value, torch.Tensor)
    }
    weight_map = {name: file for file, shard in written.items() for name in shard}
    content = {"metadata": {"total_size": sum(distinct.values())}, "weight_map": weight_map}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _suffix(number: int, count: int) -> str:
    return f"-{number + 1:05d}-of-{count:05d}" if count > 1 else ""


def _remove_others(folder: Path, pattern: str, names: list[str]) -> None:
    """Removes the files of an earlier save with a different number of shards."""
    head, tail = (re.escape(part) for part in pattern.split("{suffix}"))
    for path in folder.iterdir():
        if path.name not in names and re.fullmatch(rf"{head}(-\d{{5}}-of-\d{{5}})?{tail}", path.name):
            path.unlink()


def _bare(name: str) -> str:
    """A parameter's name without the prefixes of DDP and `torch.compile`."""
    name = name.replace("_orig_mod.", "")
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name


def _names_by_bare_name(state: Mapping[str, object]) -> dict[str, str]:
    names = {_bare(name): name for name in state}
    return names if len(names) == len(state) else {}


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
