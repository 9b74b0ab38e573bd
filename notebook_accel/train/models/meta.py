"""Makes models on the meta device, with shapes but no values, to compute their sizes on any machine."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from notebook_accel.errors import ConfigurationError


def build(name: str, arguments: dict[str, Any] | None = None) -> nn.Module:
    """Makes a model on the meta device.

    Args:
        name: `package.module:function_or_class`, which returns a module; or a folder with the `config.json` of a model
            of transformers.
        arguments: The arguments of the function or class.

    Raises:
        ConfigurationError: There is no such model, or it cannot be made on the meta device.
    """
    make = _from_folder(Path(name)) if Path(name).is_dir() or name.endswith(".json") else _from_module(name)
    try:
        with torch.device("meta"):
            model = make(**(arguments or {}))
    except Exception as error:
        raise ConfigurationError(
            f"{name} cannot be made on the meta device: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"{name} returned a {type(model).__name__}, not a torch.nn.Module")
    return model


def _from_module(name: str) -> Callable[..., Any]:
    module, _, path = name.partition(":")
    if not (module and path) or module.startswith("."):
        raise ConfigurationError(
            f"{name} is not a model: write package.module:function_or_class, or a folder with a config.json"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")  # the module may be in the working directory, as with `python -m`
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{name} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigurationError(f"{name} is a {type(found).__name__}: give a function or class that returns the model")
    return found  # type: ignore[no-any-return]


def _from_folder(path: Path) -> Callable[..., Any]:
    file = path if path.suffix == ".json" else path / "config.json"
    try:
        architectures = json.loads(file.read_text(encoding="utf-8")).get("architectures") or [None]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read as the configuration of a model: {error}") from error
    try:
        import transformers  # type: ignore[import-not-found]
    except ImportError:
        raise ConfigurationError(
            f"{file} is for transformers, which is not installed: pip install transformers, or give a module path"
        ) from None
    config = transformers.AutoConfig.from_pretrained(str(file))
    cls = getattr(transformers, architectures[0] or "", None)
    if cls is None:
        return lambda: transformers.AutoModel.from_config(config)
    return lambda: cls(config)


def largest_layer(model: nn.Module) -> int:
    """The number of parameters of the largest layer that FSDP would gather: an element of a list of layers.

    The parameters outside of all lists, such as embeddings, count as one layer, and so does a model without lists.
    """
    lists = [each for each in model.modules() if isinstance(each, (nn.ModuleList, nn.Sequential))]
    layers = [layer for each in lists for layer in each.children() if not _has_list(layer)]
    in_lists = {id(parameter) for layer in layers for parameter in layer.parameters()}
    outside = sum(each.numel() for each in model.parameters() if id(each) not in in_lists)
    return max([outside, *(sum(each.numel() for each in layer.parameters()) for layer in layers)])


def _has_list(module: nn.Module) -> bool:
    return any(isinstance(each, nn.ModuleList) for each in module.modules())


def inputs(texts: Sequence[str]) -> list[torch.Tensor]:
    """Inputs on the meta device, each from a string like `8,3,224,224` or `8,512:int64`.

    Raises:
        ConfigurationError: A string is not a valid shape, or names no dtype.
    """
    found = []
    for text in texts:
        shape, _, kind = text.partition(":")
        dtype = getattr(torch, kind or "float32", None)
        sizes = shape.split(",")
        if not isinstance(dtype, torch.dtype) or not all(each.isdecimal() for each in sizes):
            raise ConfigurationError(f"--input {text}: write the shape, such as 8,3,224,224, or 8,512:int64 for tokens")
        found.append(torch.zeros([int(each) for each in sizes], dtype=dtype, device="meta"))
    return found


def token_inputs(model: nn.Module, batch: int, sequence: int) -> dict[str, torch.Tensor]:
    """The inputs of a model of transformers: token IDs."""
    names = inspect.signature(model.forward).parameters
    if "input_ids" not in names:
        raise ConfigurationError(f"{type(model).__name__} takes no input_ids: give the shape of its input with --input")
    return {"input_ids": torch.zeros((batch, sequence), dtype=torch.int64, device="meta")}


def activations(model: nn.Module, given: Sequence[torch.Tensor], named: dict[str, torch.Tensor]) -> int:
    """The bytes that autograd saves in a forward pass, not counting parameters and inputs.

    Raises:
        ConfigurationError: The model does not accept these inputs, or uses operations that the meta device lacks.
    """
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers(), *given, *named.values())}
    saved: dict[int, torch.UntypedStorage] = {}

    def save(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage
        return tensor

    try:
        with _FusedAttention(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            result = model(*given, **named)  # the saved tensors live as long as the result
    except Exception as error:
        raise ConfigurationError(
            f"{type(model).__name__} cannot compute with these inputs on the meta device: {error}"
        ) from error
    del result
    return sum(storage.nbytes() for storage in saved.values())


class _FusedAttention(TorchFunctionMode):
    """Makes attention save what fused GPU kernels save; the meta device would store the O(n²) attention matrix."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        named = dict(zip(("query", "key", "value"), args, strict=False)) | (kwargs or {})
        return _Attention.apply(named["query"], named["key"], named["value"])  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    """Saves its inputs, its output, and a sum for each row (Dao et al., "FlashAttention", 2022, section 3.1)."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out = query.new_empty((*query.shape[:-1], value.shape[-1]))
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, sums)
        return out


@contextlib.contextmanager
def in_half(model: nn.Module, given: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Converts a model and its inputs to bfloat16 within the block, which approximates mixed precision."""
    model.bfloat16()
    yield [each.bfloat16() if each.is_floating_point() else each for each in given]
    model.float()
