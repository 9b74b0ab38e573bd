"""The rows of a batch: what has an entry for each sample, and how that is counted, taken, and joined.

A *column* has an entry for each sample: a tensor or an array with dimensions, or a list or tuple. Lists and tuples also
group columns, as in `[inputs, labels]`. They do so if each of their entries has as many rows as the batch; they are
columns if their entries are texts, numbers, or other objects, or if there is an entry of one type for each row.
Everything else, such as a number or a text, belongs to all rows.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import Dataset, Subset

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.tensors import pytree


class UnevenRowsError(ConfigurationError):
    """The rows of a batch can't be taken or joined."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a batch is read where its lists can be columns or groups of columns."""

    rows: int | None = None
    """The number of rows; `None` if it is unknown."""
    lists_are_columns: bool = False
    """Whether each list has an entry for each sample, whatever its entries."""

    def is_column(self, value: Any) -> bool:
        """Whether a value has an entry for each sample."""
        if is_array(value):
            return bool(value.ndim)
        if isinstance(value, collections.deque):
            return True
        if not _is_list(value) or not value:
            return False
        kinds = types_of(value)
        if (self.lists_are_columns and isinstance(value, list)) or not any(map(_is_compound, kinds)):
            return True
        return len(value) == self.rows and len(kinds) == 1 and not all(map(self.fits, value))

    def fits(self, data: Any) -> bool:
        """Whether all columns of a batch have the number of rows, and there is at least one."""
        return {len(column) for _, column in self.columns(data)} == {self.rows}

    def unclear(self, data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """The lists that may have an entry for each sample as well as group columns, such as three RGB images."""
        if _is_list(data) and len(data) == self.rows and len(set(map(_kind, data))) == 1 and all(map(self.fits, data)):
            yield path, data
        if not self.is_column(data):
            for key, child in pytree.items(data) or ():
                yield from self.unclear(child, path + pytree.step(data, key))

    def columns(self, data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """The columns of a batch, each with how code gets there: `['labels']`."""
        if self.is_column(data):
            yield path, data
            return
        for key, child in pytree.items(data) or ():
            yield from self.columns(child, path + pytree.step(data, key))


def is_array(value: Any) -> bool:
    """Whether a value is a tensor, or an array of NumPy."""
    return isinstance(value, _array_types())


def _array_types() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    return (torch.Tensor,) if numpy is None else (torch.Tensor, numpy.ndarray)


def types_of(entries: Iterable[Any]) -> set[type]:
    """The types of the entries of a list, which are few also where the entries are many."""
    return set(map(type, entries))


def may_have_rows(kind: type) -> bool:
    """Whether values of a type are lists or arrays."""
    return issubclass(kind, (list, *_array_types()))


def _is_compound(kind: type) -> bool:
    """Whether values of a type consist of others."""
    return (
        may_have_rows(kind) or issubclass(kind, (tuple, collections.deque, Mapping)) or dataclasses.is_dataclass(kind)
    )


def _kind(value: Any) -> Any:
    """What is equal for values that may be entries of one column."""
    return (type(value), value.dtype, value.ndim) if is_array(value) else type(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and not pytree.is_namedtuple(value)


def count(data: Any) -> int | None:
    """The number of rows of a batch; `None` if its columns disagree, or if it has none.

    Of several that are possible, it is the one with the most columns: that of the inputs in `[inputs, labels]`, not 2.
    """
    lengths = {len(column) for _, column in Reading().columns(data)}  # no reading has more columns than this one
    if len(lengths) == 1:
        return lengths.pop()
    candidates = dict.fromkeys(itertools.chain(_lengths(data, is_array), _lengths(data, _is_list)))
    possible = {rows: len(list(Reading(rows).columns(data))) for rows in candidates if Reading(rows).fits(data)}
    return max(possible, key=possible.__getitem__, default=None)


def measure(data: Any) -> int:
    """The number of rows of a batch that can be divided.

    Raises:
        UnevenRowsError: Its columns disagree, or it has none, or it can be read in two ways.
    """
    found = count(data)
    if found is not None:
        for path, _ in Reading(found).unclear(data):
            raise UnevenRowsError(f"batch{path} has {found} entries of {found} rows, so either can be the samples")
        return found
    columns = list(Reading().columns(data))
    if not columns:
        raise UnevenRowsError(f"nothing in this {type(data).__name__} has an entry for each sample")
    path, column = columns[0]
    other, different = next((path, each) for path, each in columns if len(each) != len(column))
    raise UnevenRowsError(f"batch{path} has {len(column)} rows, and batch{other} has {len(different)}")


def _lengths(data: Any, test: Callable[[Any], bool]) -> Iterator[int]:
    """The lengths that the values of one kind have in a batch."""
    if test(data) and not (is_array(data) and not data.ndim):
        yield len(data)
    for _, child in pytree.items(data) or ():
        yield from _lengths(child, test)


def take(data: Any, chosen: slice | Sequence[int], reading: Reading) -> Any:
    """The batch with some of its rows.

    Args:
        data: The batch.
        chosen: A slice, or the numbers of the rows.
        reading: How it is read; without a number of rows, the columns need not have the same.

    Raises:
        UnevenRowsError: A column has another number of rows.
    """

    def pick(path: str, columns: Sequence[Any]) -> Any:
        (column,) = columns
        if reading.rows is not None and len(column) != reading.rows:
            raise UnevenRowsError(f"the batch has {reading.rows} rows, and batch{path} has {len(column)}")
        return pick_rows(column, chosen)

    return _combine([data], [reading], pick)


def join(batches: Sequence[Any], readings: Sequence[Reading], dim: int = 0) -> Any:
    """One batch with the rows of several, which have the same structure; what belongs to all rows must be equal.

    Raises:
        UnevenRowsError: They can't be joined.
    """
    return _combine(batches, readings, lambda path, columns: _concatenate(path, columns, dim))


def _combine(
    data: Sequence[Any],
    readings: Sequence[Reading],
    on_columns: Callable[[str, Sequence[Any]], Any],
    path: str = "",
) -> Any:
    """Rebuilds several batches as one: each column from their columns at the same place."""
    first = data[0]
    if all(reading.is_column(each) for reading, each in zip(readings, data, strict=True)):
        try:
            return on_columns(path, data)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise UnevenRowsError(f"batch{path} can't be divided or joined ({error})") from error
    keys = [[key for key, _ in pytree.items(each) or ()] for each in data]
    if any(type(each) is not type(first) for each in data) or any(each != keys[0] for each in keys):
        raise UnevenRowsError(f"batch{path} has different structures in several batches")

    def child(key: Any, _: Any) -> Any:
        step = pytree.step(first, key)
        return _combine([dict(pytree.items(each) or ())[key] for each in data], readings, on_columns, path + step)

    new = pytree.with_children(first, child)
    if new is None and len(data) > 1 and not all(_are_equal(first, each) for each in data):
        raise UnevenRowsError(f"batch{path}, which isn't one value for each sample, differs between batches")
    if isinstance(new, UserDict):  # such as a tokenizer's output, which has a list of encodings
        for name, value in vars(first).items():
            others = [getattr(each, name, None) for each in data]
            if (
                name != "data"
                and isinstance(value, list)
                and all(
                    isinstance(other, list) and len(other) == reading.rows
                    for other, reading in zip(others, readings, strict=True)
                )
            ):
                setattr(new, name, on_columns(f"{path}.{name}", others))
    return first if new is None else new


def cut(own: Any, joined: Any, reading: Reading, length: int) -> Any:
    """The first rows of the columns of `joined`, a tree like `own`, which is read to tell what its columns are."""
    if reading.is_column(own):
        return pick_rows(joined, slice(length))
    children = dict(pytree.items(own) or ())
    new = pytree.with_children(joined, lambda key, child: cut(children[key], child, reading, length))
    return joined if new is None else new


def pick_rows(column: Any, chosen: slice | Sequence[int]) -> Any:
    """Some rows of a column, as a column of the same kind."""
    if hasattr(column, "iloc"):  # of pandas, where a number in brackets is a name
        return column.iloc[chosen]
    if is_array(column):
        return column[chosen]
    numbers = range(len(column))[chosen] if isinstance(chosen, slice) else chosen
    if hasattr(column, "select"):  # a data set of the `datasets` library, whose slices are dicts
        return column.select(numbers if len(numbers) else [])  # a range may not begin at the end
    if isinstance(column, Dataset):  # which may take no slices, or return the columns of a slice
        return Subset(column, numbers)
    if isinstance(column, (list, tuple, collections.deque)):
        return _like(column, [column[number] for number in numbers])
    if isinstance(chosen, slice):
        return column[chosen]
    raise UnevenRowsError(f"a {type(column).__name__} can't be padded: pass a list, tuple, tensor, array, or data set")


def _like(column: Any, entries: list[Any]) -> Any:
    """A list, tuple, or deque with other entries."""
    if isinstance(column, collections.deque):
        new = copy.copy(column)
        new.clear()
        new.extend(entries)
        return new
    return tuple(entries) if isinstance(column, tuple) else entries


def _concatenate(path: str, columns: Sequence[Any], dim: int) -> Any:
    first = columns[0]
    if len(columns) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(list(columns), dim=dim)
    if is_array(first):
        try:
            return sys.modules["numpy"].concatenate(columns, axis=dim)
        except ValueError as error:
            raise UnevenRowsError(f"batch{path} can't be joined ({error})") from error
    return _like(first, list(itertools.chain(*columns)))


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    try:
        return one is other or bool(one == other)
    except Exception:  # a type of the user's, which can't be compared
        return False


def concatenate(data: Any, dim: int = 0) -> Any:
    """Concatenates trees of the same structure, leaf by leaf, along a dimension.

    Args:
        data: The trees, a list or tuple of at least one. What isn't a tensor, an array, or a list of entries, such as a
            text, must be equal in all of them.
        dim: The dimension along which tensors and arrays are concatenated.

    Raises:
        ConfigurationError: A leaf can't be concatenated.
    """
    return join(data, [Reading(count(each)) for each in data], dim)


def slice_tensors(
    data: Any, tensor_slice: slice, process_index: int | None = None, num_processes: int | None = None
) -> Any:
    """Returns the tree with the given rows of each tensor or array, and of each list with as many entries.

    The last two arguments are those of a `slice_fn`.
    """
    reading = Reading(count(data))
    rows = reading.rows

    def pick(_: str, columns: Sequence[Any]) -> Any:
        (column,) = columns
        return pick_rows(column, tensor_slice) if is_array(column) or len(column) == rows else column

    return _combine([data], [reading], pick)
