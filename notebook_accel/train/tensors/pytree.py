"""Batches are trees of tensors: tuples, named tuples, lists, mappings and dataclasses, nested arbitrarily.

A rebuilt node has the type of the original. Leaves other than tensors are left unchanged.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class TensorInformation:
    """The information needed to allocate memory for a tensor that has not arrived yet."""

    shape: torch.Size
    dtype: torch.dtype


def is_torch_tensor(tensor: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(tensor, torch.Tensor)


def is_tensor_information(tensor_info: Any) -> bool:
    """Whether a value is a `TensorInformation`."""
    return isinstance(tensor_info, TensorInformation)


def is_namedtuple(data: Any) -> bool:
    """Whether a value is a named tuple, which is built from its fields one by one."""
    return isinstance(data, tuple) and hasattr(data, "_fields") and hasattr(data, "_asdict")


def honor_type(obj: Any, generator: Iterable[Any]) -> Any:
    """Returns a list, tuple or named tuple of the type of `obj`, with other elements."""
    return type(obj)(*generator) if is_namedtuple(obj) else type(obj)(generator)


def with_children(node: Any, children: Callable[[Any, Any], Any]) -> Any:
    """Rebuilds one node, or returns `None` for a leaf.

    Args:
        node: Any value.
        children: Gives the new child for a key (an index, a key of the mapping, a name of a field) and the old child.
    """
    if isinstance(node, (tuple, list)):
        return honor_type(node, (children(index, child) for index, child in enumerate(node)))
    if isinstance(node, (dict, UserDict)):  # a copy keeps its attributes, such as a default factory or encodings
        items = copy.copy(node)
        for key, child in node.items():
            items[key] = children(key, child)
        return items
    if isinstance(node, Mapping):
        return type(node)({key: children(key, child) for key, child in node.items()})  # type: ignore[call-arg]
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        new = copy.copy(node)
        for field in dataclasses.fields(node):  # works if frozen, and does not run __post_init__ again
            object.__setattr__(new, field.name, children(field.name, getattr(node, field.name)))
        return new
    return None


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """Returns the tree with `func(leaf, *args, **kwargs)` instead of each leaf that `test_type` accepts.

    Raises:
        TypeError: With `error_on_other_type`, for a leaf that it does not accept.
    """

    def visit(_: Any, value: Any) -> Any:
        if test_type(value):
            return func(value, *args, **kwargs)
        new = with_children(value, visit)
        if new is None and error_on_other_type:
            raise TypeError(_other_leaf(getattr(func, "__name__", func), value))
        return value if new is None else new

    return visit(None, data)


def send_to_device(
    tensor: Any,
    device: torch.device | str | int,
    non_blocking: bool = False,
    skip_keys: str | list[str] | None = None,
) -> Any:
    """Returns the tree with its tensors, and other objects with a `to` method, on a device.

    Args:
        tensor: The tree.
        device: The target device.
        non_blocking: Whether to return before the copies finish; they overlap with other work only from pinned memory.
        skip_keys: Keys of mappings and fields of dataclasses whose values stay where they are.
    """
    skipped = (skip_keys,) if isinstance(skip_keys, str) else tuple(skip_keys or ())

    def visit(key: Any, value: Any) -> Any:
        if skipped and isinstance(key, str) and key in skipped:
            return value
        if isinstance(value, torch.Tensor):
            return value.to(device, non_blocking=non_blocking)
        if hasattr(value, "to") and not (skipped and isinstance(value, Mapping)):
            return _to(value, device, non_blocking)
        new = with_children(value, visit)
        return value if new is None else new

    return visit(None, tensor)


def _to(value: Any, device: torch.device | str | int, non_blocking: bool) -> Any:
    try:
        return value.to(device, non_blocking=non_blocking)
    except TypeError:  # its `to` accepts only a device
        return value.to(device)


def leaves(data: Any, test_type: Callable[[Any], bool] = is_torch_tensor) -> list[Any]:
    """The leaves that `test_type` accepts, in order."""
    if test_type(data):
        return [data]
    return [leaf for _, child in items(data) or () for leaf in leaves(child, test_type)]


def tensors(data: Any, operation: str) -> list[torch.Tensor]:
    """The leaves, in order, for an operation that takes only tensors.

    Raises:
        TypeError: There is another leaf; the message names the operation.
    """
    found = leaves(data, lambda value: items(value) is None)
    for leaf in found:
        if not isinstance(leaf, torch.Tensor):
            advice = "pass torch.tensor(value) for a number, or call gather_object for other objects"
            raise TypeError(f"{_other_leaf(operation, leaf)}: {advice}")
    return found


def strided(data: Any, operation: str) -> list[torch.Tensor]:
    """The same, for an operation that takes only tensors with one size for each dimension, and all their elements.

    Raises:
        TypeError: As `tensors`; or a tensor is nested or sparse.
    """
    found = tensors(data, operation)
    for leaf in found:
        if leaf.is_nested:
            raise TypeError(
                f"{operation} doesn't take nested tensors, whose rows differ in length: pad the rows, as in "
                f"{operation}(torch.nested.to_padded_tensor(tensor, 0)), or pass tensor.unbind() to gather_object"
            )
        if leaf.layout is not torch.strided:
            kind = str(leaf.layout).removeprefix("torch.")
            raise TypeError(f"{operation} doesn't take tensors of the layout {kind}: pass tensor.to_dense()")
    return found


def _other_leaf(operation: Any, leaf: Any) -> str:
    kinds = "tensors, and lists, tuples, mappings, and dataclasses of tensors"
    return f"{operation} takes {kinds}; found a {type(leaf).__name__}"


def items(node: Any) -> Collection[tuple[Any, Any]] | None:
    """The children of a node, in order, each with its index, key, or field; `None` for a leaf."""
    if isinstance(node, (tuple, list)):
        return list(enumerate(node))
    if isinstance(node, Mapping):
        return node.items()
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return [(field.name, getattr(node, field.name)) for field in dataclasses.fields(node)]
    return None


def step(node: Any, key: Any) -> str:
    """How Python code gets from a node to one of its children."""
    if is_namedtuple(node):
        return f".{node._fields[key]}"
    if dataclasses.is_dataclass(node) and not isinstance(node, Mapping):
        return f".{key}"
    return f"[{key!r}]"


def has_only_tensors(data: Any) -> bool:
    """Whether each leaf is a tensor."""
    if isinstance(data, torch.Tensor):
        return True
    children = items(data)
    return children is not None and all(has_only_tensors(child) for _, child in children)


def find_batch_size(data: Any) -> int:
    """The length of the first dimension of the first tensor that has one.

    Raises:
        ValueError: There is no such tensor.
    """
    found = ignorant_find_batch_size(data)
    if found is not None:
        return found
    raise ValueError(
        f"the size of this {type(data).__name__} can't be determined: it has no tensor of one or more dimensions"
    )


def ignorant_find_batch_size(data: Any) -> int | None:
    """The length of the first dimension of the first tensor that has one; `None` if there is no such tensor."""
    return next((int(tensor.shape[0]) for tensor in leaves(data) if tensor.ndim), None)


def find_device(data: Any) -> torch.device | None:
    """The device of the first tensor; `None` if there is none."""
    return next((tensor.device for tensor in leaves(data)), None)


def get_data_structure(data: Any) -> Any:
    """Returns the tree with a `TensorInformation` in place of each tensor."""
    return recursively_apply(lambda tensor: TensorInformation(tensor.shape, tensor.dtype), data)


def initialize_tensors(data_structure: Any) -> Any:
    """Returns the tree with an empty tensor in place of each `TensorInformation`."""
    return recursively_apply(
        lambda found: torch.empty(found.shape, dtype=found.dtype),
        data_structure,
        test_type=is_tensor_information,
    )


def listify(data: Any) -> Any:
    """Returns the tree with a list of numbers, or a number, in place of each tensor."""

    def plain(tensor: torch.Tensor) -> Any:
        tensor = tensor.detach().cpu()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).tolist()

    return recursively_apply(plain, data)
