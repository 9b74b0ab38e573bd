"""Gathers trees of lists, texts, and other objects for metrics: each list is joined with those of the other ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from notebook_accel.errors import ConfigurationError, DistributedOperationException
from notebook_accel.train.ranks import collectives
from notebook_accel.train.ranks.state import PartialState
from notebook_accel.train.tensors import rows, tree
from notebook_accel.train.tensors.rows import Reading, UnevenRowsError


@dataclass(frozen=True)
class _MetricReading(Reading):
    """Refuses a list that could have an entry for each sample as well as group lists that do."""

    def is_column(self, value: Any) -> bool:
        if self.lists_are_columns or not isinstance(value, list) or not any(map(_has_rows, value)):
            return super().is_column(value) or (self.rows is None and isinstance(value, list) and bool(value))
        is_group, is_column = all(map(super().fits, value)), len(value) == self.rows
        if self.rows is None or (is_group and is_column):
            raise ConfigurationError(
                f"gather_for_metrics can't tell whether a list of {len(value)} lists has an entry for each sample, or "
                "groups lists that do: pass a tuple or a dict to group them, or use_gather_object=True for entries "
                "that are lists"
            )
        return is_column or not is_group


def _has_rows(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or rows.is_array(value)


def reading(data: Any, size: int | None, lists_are_columns: bool) -> Reading:
    """How data is read whose lists have `size` entries, as far as that is known.

    Raises:
        ConfigurationError: It can't be gathered, or can be read in two ways.
    """
    found = _MetricReading(size, lists_are_columns)
    _check(data, found, "")
    return found


def _check(data: Any, found: Reading, path: str) -> None:
    if found.is_column(data) or isinstance(data, torch.Tensor):
        return
    children = tree.items(data)
    if children is None:
        raise ConfigurationError(
            f"gather_for_metrics takes tensors, arrays, lists, and tuples with an entry for each sample, and dicts and "
            f"dataclasses of these, but input_data{path} is a {type(data).__name__}: put it in a list, or use "
            "gather_object"
        )
    for key, child in children:
        _check(child, found, path + tree.step(data, key))


def gather(data: Any, own: Reading, group: Any) -> Any:
    """The data with the entries of all ranks in each list, tensor, or array."""
    PartialState().compare_calls("gather_object", group=group)
    device = tree.find_device(data)
    found = collectives.all_objects((_portable(data, own), own.rows), group)
    readings = [replace(own, rows=size) for _, size in found]
    try:
        joined = rows.join([each for each, _ in found], readings)
    except UnevenRowsError as error:
        raise DistributedOperationException(
            f"gather_for_metrics can't join what the ranks have passed: {error}. Pass the same structure on all ranks. "
            "For tensors whose shapes differ, call pad_across_processes first, or pass use_gather_object=True"
        ) from error
    return joined if device is None else tree.recursively_apply(lambda leaf: leaf.to(device), joined)


def _portable(data: Any, own: Reading) -> Any:
    """The data as it is sent: tensors on the CPU, with dimensions; as lists of their rows if lists are gathered."""
    if rows.is_array(data):
        if isinstance(data, torch.Tensor):
            data = data.detach().cpu()
            data = data.reshape(1) if data.ndim == 0 else data
        return list(data) if own.lists_are_columns and data.ndim else data
    if own.is_column(data):
        return tree.recursively_apply(lambda entry: entry.detach().cpu(), data)
    new = tree.with_children(data, lambda _, child: _portable(child, own))
    return data if new is None else new
