"""Collectives over nested tensors and objects. On a single rank they return their input.

Shapes are compared before data moves, so ranks that disagree raise an error that names the shapes of each, rather
than hang. Small trees still take a single collective: the data travels with the shapes. Debug mode compares more, in
a collective of its own (`PartialState.compare_calls`).
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from notebook_accel.errors import ConfigurationError, DistributedOperationException
from notebook_accel.train.ranks import collective_check, communicator
from notebook_accel.train.ranks.mesh import Ranks
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors import packing, pytree

Tree = TypeVar("Tree")
"""A tensor, or a tree of tensors."""
_REDUCTIONS = ("sum", "mean", "max", "none")


def gather(tensor: Tree) -> Tree:
    """Concatenates the tensors of all ranks along their first dimension, in the order of the ranks.

    Args:
        tensor: A tensor or a tree of tensors, of the same shapes on all ranks. Those without dimensions get one.

    Returns:
        The same tree on every rank; a tensor of shape (n, …) has become (ranks × n, …).

    Raises:
        DistributedOperationException: The shapes or types differ between ranks.
        TypeError: A leaf is not a tensor.
    """
    return gather_over(tensor, everyone())


def gather_over(data: Tree, ranks: Ranks) -> Tree:
    """`gather` over some of the ranks."""
    if ranks.size == 1:
        return data
    PartialState().compare_calls("gather", data, ranks.group)
    return _exchange_checked("gather", data, ranks.group, _stack, _gather_one)


def reduce(tensor: Tree, reduction: str = "mean", scale: float = 1.0) -> Tree:
    """Adds up the tensors of all ranks, or takes their mean or maximum.

    As in `torch.sum`, sums of integers and of booleans are of int64, so that they don't overflow.

    Args:
        tensor: A tensor or a tree of tensors, of the same shapes on all ranks.
        reduction: `sum`, `mean`, `max`, or `none` to leave the values as they are.
        scale: A factor for the result.

    Returns:
        The same tree on every rank, of tensors of its own.

    Raises:
        DistributedOperationException: The shapes or types differ between ranks.
        ConfigurationError: There is no such reduction.
        TypeError: A leaf is not a tensor.
    """
    return reduce_over(tensor, reduction, scale, everyone())


def reduce_over(tensor: Tree, reduction: str, scale: float, ranks: Ranks) -> Tree:
    """`reduce` over some of the ranks."""
    if reduction not in _REDUCTIONS:
        raise ConfigurationError(f"reduction={reduction!r} must be one of {', '.join(_REDUCTIONS)}")
    if ranks.size > 1:
        PartialState().compare_calls(f"reduce(reduction={reduction!r})", tensor, ranks.group)
    if reduction in ("sum", "mean"):
        tensor = pytree.recursively_apply(_summand, tensor)
    if reduction == "none" or ranks.size == 1:
        pytree.tensors(tensor, "reduce")  # refuses other leaves
        reduced = pytree.recursively_apply(torch.Tensor.clone, tensor)
    else:
        maximum = reduction == "max"

        def collective(leaf: torch.Tensor, group: Any) -> torch.Tensor:
            return PartialState().communicator.reduce(leaf.detach(), maximum, group)

        reduced = _exchange_checked("reduce", tensor, ranks.group, _maximum if maximum else _add, collective)
    factors = {"sum": scale, "mean": scale / ranks.size, "max": scale, "none": 1}
    factor = factors[reduction]
    scaled: Tree = reduced if factor == 1 else pytree.recursively_apply(lambda leaf: leaf * factor, reduced)
    return scaled


def _summand(leaf: torch.Tensor) -> torch.Tensor:
    return leaf if leaf.is_floating_point() or leaf.is_complex() else leaf.long()


def broadcast(tensor: Tree, from_process: int = 0) -> Tree:
    """Copies one rank's tensors into those of all other ranks, in place, and returns them.

    Args:
        tensor: A tensor or a tree of tensors, of the same shapes on all ranks.
        from_process: The rank whose tensors are copied.

    Raises:
        DistributedOperationException: The shapes or types differ between ranks.
        ConfigurationError: There is no such rank.
        TypeError: A leaf is not a tensor.
    """
    state = PartialState()
    _check_rank(from_process, state)
    if not state.use_distributed:
        return tensor
    state.compare_calls(f"broadcast(from_process={from_process})", tensor)

    def take(leaf: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return _fill(leaf, parts[from_process])

    def send(leaf: torch.Tensor, _: Any) -> torch.Tensor:
        return _fill(leaf, PartialState().communicator.broadcast(leaf.detach(), from_process))

    return _exchange_checked("broadcast", tensor, None, take, send)


def gather_object(object: Any) -> Any:
    """Concatenates the lists of all ranks, in the order of the ranks, and returns the result on every rank.

    Args:
        object: This rank's list, of any length. Its elements can be any objects that can be pickled.

    Raises:
        TypeError: A text or a mapping, which would be taken apart.
    """
    if isinstance(object, (str, bytes, Mapping)):
        raise TypeError(
            f"gather_object joins the lists of all ranks, but was given a {type(object).__name__}, which would be "
            "taken apart: pass it in a list, as in gather_object([value])"
        )
    return gather_object_over(object, everyone())


def gather_object_over(value: Any, ranks: Ranks) -> Any:
    """`gather_object` over some of the ranks."""
    if ranks.size == 1:
        return value
    PartialState().compare_calls("gather_object", group=ranks.group)
    return [element for each in all_objects(value, ranks.group) for element in each]


def mean_of(value: float) -> float:
    """The mean of a number over all ranks; exactly this number if they have the same."""
    found = gather_object([value])
    return value if len(set(found)) == 1 else float(sum(found) / len(found))


def all_objects(value: Any, group: Any = None) -> list[Any]:
    """The values of all ranks, by rank; anything that can be pickled."""
    state = PartialState()
    return state.communicator.all_gather_objects(value, group) if state.use_distributed else [value]


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replaces the elements of a list with those of one rank's list, in place, and returns the list.

    Args:
        object_list: The list. Its elements can be any objects that can be pickled.
        from_process: The rank whose list is copied.

    Raises:
        ConfigurationError: There is no such rank.
    """
    state = PartialState()
    _check_rank(from_process, state)
    if state.use_distributed:
        state.compare_calls(f"broadcast_object_list(from_process={from_process})")
        own = pickle.dumps(list(object_list)) if state.process_index == from_process else b""
        object_list[:] = pickle.loads(PartialState().communicator.all_gather_bytes(own)[from_process])
    return object_list


def copy_tensor_to_devices(tensor: torch.Tensor | None = None) -> torch.Tensor:
    """Sends the tensor of the one rank that has it to all ranks, on their devices.

    Args:
        tensor: The tensor; `None` on all other ranks.

    Raises:
        DistributedOperationException: Not exactly one rank has passed a tensor.
    """
    state = PartialState()
    if state.use_distributed:
        state.compare_calls("copy_tensor_to_devices")
    found = all_objects(None if tensor is None else (tensor.shape, tensor.dtype))
    owners = [rank for rank, each in enumerate(found) if each is not None]
    if len(owners) != 1:
        raise DistributedOperationException(
            f"copy_tensor_to_devices needs a tensor on one rank, and None on all others, but {len(owners)} ranks have "
            "passed a tensor"
        )
    shape, dtype = found[owners[0]]
    own = torch.empty(shape, dtype=dtype, device=state.device) if tensor is None else tensor.to(state.device)
    sent: torch.Tensor = broadcast(own, owners[0])
    return sent


class CannotPadNestedTensorWarning(UserWarning):
    """A nested tensor was not padded."""


def pad_across_processes(tensor: Tree, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Tree:
    """Pads each tensor along a dimension to the size of the longest of all ranks.

    Args:
        tensor: A tensor or a tree of tensors, each with the same number of dimensions on all ranks. Nested ones stay
            as they are, with a warning.
        dim: Tensors that do not have this dimension stay as they are.
        pad_index: The value to fill with.
        pad_first: Whether to fill at the beginning rather than at the end.

    Returns:
        The same tree, of tensors that have the same size along `dim` on all ranks.

    Raises:
        DistributedOperationException: The numbers of tensors, or of their dimensions, differ between ranks.
    """
    leaves = pytree.leaves(tensor)
    if any(leaf.is_nested for leaf in leaves):
        advice = "torch.nested.to_padded_tensor(tensor, 0) makes tensors that it pads"
        warnings.warn(
            f"pad_across_processes leaves nested tensors as they are: {advice}", CannotPadNestedTensorWarning, 2
        )
    state = PartialState()
    if not state.use_distributed:
        return tensor
    state.compare_calls(f"pad_across_processes(dim={dim})", tensor, sizes=False)
    shapes = all_objects([_sizes(leaf) for leaf in leaves])
    if len({tuple(map(len, each)) for each in shapes}) > 1:
        texts = [", ".join(map(str, each)) or "no tensors" for each in shapes]
        raise collective_check.mismatch("pad_across_processes", _by_rank(texts), sizes=False)
    longest = iter([max(shape[dim] if _has(shape, dim) else 0 for shape in each) for each in zip(*shapes, strict=True)])

    def pad(leaf: torch.Tensor) -> torch.Tensor:
        size = next(longest)
        return _pad_one(leaf, dim, size, pad_index, pad_first) if _has(_sizes(leaf), dim) else leaf

    padded: Tree = pytree.recursively_apply(pad, tensor)
    return padded


def _sizes(leaf: torch.Tensor) -> Sequence[int]:
    """What a leaf can be padded to: its shape, or nothing if its rows have shapes of their own."""
    return () if leaf.is_nested else tuple(leaf.shape)


def _has(shape: Sequence[int], dim: int) -> bool:
    return -len(shape) <= dim < len(shape)


def _pad_one(leaf: torch.Tensor, dim: int, size: int, pad_index: float, pad_first: bool) -> torch.Tensor:
    missing = size - leaf.shape[dim]
    if not missing:
        return leaf
    shape = list(leaf.shape)
    shape[dim] = missing
    padding = leaf.new_full(shape, pad_index)
    return torch.cat([padding, leaf] if pad_first else [leaf, padding], dim=dim)


def _exchange_checked(
    operation: str,
    data: Tree,
    group: Any,
    combine: Callable[[torch.Tensor, Sequence[torch.Tensor]], torch.Tensor],
    collective: Callable[[torch.Tensor, Any], torch.Tensor],
) -> Tree:
    """Runs an operation on a tree, after checking that all ranks call it with the same shapes.

    Args:
        operation: Its name.
        data: The tree.
        group: The ranks; `None` for all.
        combine: Computes a result from this rank's leaf and those of all ranks, if they travelled with the shapes.
        collective: Computes a result by a collective for each leaf, if they did not.
    """
    leaves = [leaf.detach() for leaf in pytree.strided(data, operation)]
    head = f"{operation} {', '.join(map(collective_check.describe, leaves))}"
    if PartialState().communicator.compares_shapes:
        body = packing.pack(leaves) if _fit_one_message(leaves) else None
        messages = communicator.exchange(head.encode(), body, group)
        if len({message.mark for message in messages}) > 1:
            heads = [message.head.decode(errors="replace") for message in messages]
            raise collective_check.mismatch(operation, _by_rank(heads))
        bodies = [message.body for message in messages if message.body is not None]
        if bodies:  # equal heads mean equal sizes: all of them fit, or none does
            arrived = iter(_unpack(leaves, bodies))
            combined: Tree = pytree.recursively_apply(lambda leaf: combine(leaf, next(arrived)), data)
            return combined
    exchanged: Tree = pytree.recursively_apply(lambda leaf: collective(leaf, group), data)
    return exchanged


def _by_rank(texts: Sequence[str]) -> list[str]:
    return [f"rank {rank}: {text}" for rank, text in enumerate(texts)]


def _fit_one_message(leaves: Sequence[torch.Tensor]) -> bool:
    """Whether the leaves can travel with their shapes: they are few bytes, and on the CPU."""
    on_cpu = all(leaf.device.type == "cpu" for leaf in leaves)
    return bool(leaves) and on_cpu and sum(leaf.nbytes for leaf in leaves) <= communicator.MAX_SIZE


def _unpack(leaves: Sequence[torch.Tensor], bodies: Sequence[memoryview]) -> list[list[torch.Tensor]]:
    """For each leaf, those of all ranks."""
    found: list[list[torch.Tensor]] = []
    # torch refuses to read from an empty buffer.
    packed = [torch.frombuffer(body, dtype=torch.uint8) for body in bodies if len(body)]
    start = 0
    for leaf in leaves:
        if leaf.numel():
            found.append([packing.unpack(each, start, leaf.shape, leaf.dtype) for each in packed])
        else:
            found.append([torch.empty_like(leaf) for _ in bodies])
        start += packing.aligned(leaf.nbytes)
    return found


def _stack(leaf: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.view(1) for part in parts] if leaf.dim() == 0 else list(parts))


def _add(leaf: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _maximum(leaf: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts)).amax(0)


def _gather_one(leaf: torch.Tensor, group: Any) -> torch.Tensor:
    return PartialState().communicator.gather(leaf.detach().reshape(1) if leaf.dim() == 0 else leaf.detach(), group)


def _fill(leaf: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return leaf.copy_(value)


def everyone() -> Ranks:
    """All ranks."""
    state = PartialState()
    return Ranks(state.process_index, state.num_processes)


def _check_rank(rank: int, state: PartialState) -> None:
    if not 0 <= rank < state.num_processes:
        raise ConfigurationError(f"from_process={rank}: the ranks are 0 to {state.num_processes - 1}")
