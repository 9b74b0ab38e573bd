"""Access to a model's parameters and buffers by name: listing, replacing, tying, measuring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from notebook_accel import advice
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints import weights

Device = int | str | torch.device
_UNCONVERTED = ("torch.uint", "torch.int", "torch.bool")
"""Types that no change of a model's precision changes."""


def named_module_tensors(
    module: nn.Module, include_buffers: bool = True, recurse: bool = False, remove_non_persistent: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields a module's parameters, then its buffers, with their names.

    Args:
        module: The module.
        include_buffers: Whether to yield buffers.
        recurse: Whether to yield those of the modules in it, too.
        remove_non_persistent: Whether to leave out buffers that its state dict does not have.
    """
    yield from module.named_parameters(recurse=recurse)
    if not include_buffers:
        return
    skipped: set[str] = set()
    if remove_non_persistent:
        for prefix, inner in module.named_modules() if recurse else [("", module)]:
            skipped |= {f"{prefix}.{name}".lstrip(".") for name in inner._non_persistent_buffers_set}
    yield from ((name, buffer) for name, buffer in module.named_buffers(recurse=recurse) if name not in skipped)


def set_module_tensor_to_device(
    module: nn.Module,
    tensor_name: str,
    device: Device,
    value: torch.Tensor | None = None,
    dtype: str | torch.dtype | None = None,
    fp16_statistics: Any = None,
    tied_params_map: Any = None,
    non_blocking: bool = False,
    clear_cache: bool = True,
) -> None:
    """Moves one parameter or buffer of a model to a device, or gives it a value there.

        set_module_tensor_to_device(model, "layers.0.weight", "cuda:0", value=loaded["layers.0.weight"])

    Args:
        module: The model.
        tensor_name: The full name.
        device: The device.
        value: The new value; needed for a tensor on the meta device, which has none.
        dtype: The new type; by default that of the tensor before. Integers keep theirs.
        fp16_statistics: Not available.
        tied_params_map: Not available.
        non_blocking: Whether to return before the copy finishes.
        clear_cache: Without effect: torch's cache is left for the next tensor.

    Raises:
        ConfigurationError: The model has no such tensor, or the value does not fit it.
    """
    advice.refuse("set_module_tensor_to_device", fp16_statistics=fp16_statistics, tied_params_map=tied_params_map)
    owner, own = _owner(module, tensor_name)
    tensors = owner._parameters if own in owner._parameters else owner._buffers
    if own not in tensors or (old := tensors[own]) is None:
        raise ConfigurationError(f"the model has no parameter or buffer {tensor_name!r}")
    if value is None and old.is_meta and torch.device(device).type != "meta":
        raise ConfigurationError(f"{tensor_name!r} is on the meta device, so it has no value to move: pass value=")
    if value is not None and value.shape != old.shape:
        raise ConfigurationError(
            f"{tensor_name!r} has the shape {tuple(old.shape)}, but the value has {tuple(value.shape)}: it is from "
            "another model, or from one with another configuration"
        )
    new = old.detach() if value is None else value.detach()
    target = _dtype(dtype) or old.dtype
    if value is not None and dtype is not None and str(new.dtype).startswith(_UNCONVERTED):
        target = new.dtype
    new = new.to(device, target, non_blocking=non_blocking)
    if isinstance(old, nn.Parameter):
        parameter = type(old)(new, requires_grad=old.requires_grad and new.is_floating_point())
        parameter.__dict__.update(old.__dict__)
        owner._parameters[own] = parameter
    else:
        owner._buffers[own] = new


def find_tied_parameters(model: nn.Module, **kwargs: Any) -> list[list[str]]:
    """The names under which a model uses one parameter several times, a sorted list for each such parameter."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [sorted(same) for same in names.values() if len(same) > 1]


def retie_parameters(model: nn.Module, tied_params: Iterable[Sequence[str]]) -> None:
    """Ties names to one parameter again: the first of them that has a value.

    Args:
        model: The model.
        tied_params: What `find_tied_parameters` returned.
    """
    for names in tied_params:
        places = [_owner(model, name) for name in names]
        found = [getattr(owner, own) for owner, own in places]
        shared = next((parameter for parameter in found if not parameter.is_meta), None)
        if shared is not None:
            for owner, own in places:
                setattr(owner, own, shared)


def id_tensor_storage(tensor: torch.Tensor) -> tuple[torch.device, int, int]:
    """A key of a tensor's memory: equal for tensors that share it. All tensors on the meta device share theirs."""
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def dtype_byte_size(dtype: torch.dtype) -> float:
    """The bytes of one element, packed: an eighth for booleans."""
    return 1 / 8 if dtype == torch.bool else dtype.itemsize


def compute_module_sizes(
    model: nn.Module,
    dtype: str | torch.dtype | None = None,
    special_dtypes: Mapping[str, str | torch.dtype] | None = None,
    buffers_only: bool = False,
) -> dict[str, int]:
    """The bytes of each module of a model, by its name; of the whole model under the empty name.

    Args:
        model: The model; may be on the meta device.
        dtype: The type that floating-point tensors would be converted to if theirs is larger.
        special_dtypes: Types of single tensors, by name.
        buffers_only: Whether to leave out parameters.
    """
    special = {name: dtype_byte_size(_dtype(each) or torch.float32) for name, each in (special_dtypes or {}).items()}
    limit = _dtype(dtype)
    sizes: dict[str, Any] = defaultdict(int)
    for name, tensor in model.named_buffers() if buffers_only else named_module_tensors(model, recurse=True):
        each = special.get(name, dtype_byte_size(tensor.dtype))
        if limit is not None and name not in special and not str(tensor.dtype).startswith(_UNCONVERTED):
            each = min(each, dtype_byte_size(limit))
        parts = name.split(".")
        for count in range(len(parts) + 1):
            sizes[".".join(parts[:count])] += tensor.numel() * each
    return sizes


def calculate_maximum_sizes(model: nn.Module) -> tuple[int, tuple[int, list[str]]]:
    """The bytes of a model's weights, and those of its largest layer, with the names of the layers of that size.

    A layer is a module without children, or one that the model's `_no_split_modules` names, as in transformers.
    """
    sizes = compute_module_sizes(model)
    whole = getattr(model, "_no_split_modules", None) or ()
    layers = [name for name, _ in model.named_parameters(recurse=False)]
    for name, child in model.named_children():
        layers += _layers(name, child, whole)
    layers += [name for name, _ in model.named_buffers(recurse=False)]
    largest = max((sizes[name] for name in layers), default=0)
    return sizes[""], (largest, [name for name in layers if largest and sizes[name] == largest])


def _layers(name: str, module: nn.Module, whole: Collection[str]) -> Iterator[str]:
    """The names of the layers in a module; see `calculate_maximum_sizes`."""
    children = dict(module.named_children())
    if not children or type(module).__name__ in whole:
        yield name
        return
    for inner, child in children.items():
        yield from _layers(f"{name}.{inner}", child, whole)


def convert_file_size_to_int(size: int | str) -> int:
    """Bytes, from a number or a text such as `5GB` (5 · 10⁹) or `5GiB` (5 · 2³⁰).

    Raises:
        ConfigurationError: The text is not a size.
    """
    return weights.parse_size(size)


def load_state_dict(checkpoint_file: str, device_map: Mapping[str, Device] | None = None) -> dict[str, torch.Tensor]:
    """The tensors of a file of safetensors, or of weights that torch wrote.

    Args:
        checkpoint_file: The file.
        device_map: Devices by the beginning of the tensors' names, the longest counts; by default the CPU.

    Raises:
        ConfigurationError: There is no such file.
    """
    (file,) = weights.files(checkpoint_file)
    state = weights.read(file)
    if not device_map:
        return state
    prefixes = sorted(device_map, key=len, reverse=True)

    def device(name: str) -> Device:
        found = (each for each in prefixes if not each or name == each or name.startswith(f"{each}."))
        return device_map.get(next(found, ""), "cpu")

    return {name: tensor.to(device(name)) for name, tensor in state.items()}


def has_offloaded_params(module: nn.Module) -> bool:
    """Whether a module keeps parameters elsewhere until its forward pass, as models that Accelerate dispatched do."""
    return bool(getattr(getattr(module, "_hf_hook", None), "offload", False))


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that has a tensor, and its name there."""
    path, _, own = name.rpartition(".")
    try:
        return model.get_submodule(path), own
    except AttributeError as error:
        raise ConfigurationError(f"the model has no parameter or buffer {name!r}: {error}") from None


def _dtype(given: str | torch.dtype | None) -> torch.dtype | None:
    """A type, also from a text such as `float16` or `torch.float16`."""
    if not isinstance(given, str):
        return given
    found = getattr(torch, given.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ConfigurationError(f"dtype={given!r} is not a type of torch")
    return found
