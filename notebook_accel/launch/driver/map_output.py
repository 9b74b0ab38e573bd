"""What a map returns: a list of its values, or the file that they are written to."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver.map_work import FailedItem
from notebook_accel.launch.wire import map_call
from notebook_accel.rank_spans import counted

ROWS = 10_000
"""The rows that are written to a Parquet file at once."""
_MOST_NAMED = 10

Read = Callable[[], Iterable[bytes]]
"""Reads the values, which are pickled, in the order of the items; it may be called several times."""


class MappedValues(list[Any]):
    """The values in the order of the items, with a `FailedItem` for each item that failed."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.failures = [each for each in self if isinstance(each, FailedItem)]
        """The items that failed, by their index."""


_Unreadable = dict[int, FailedItem]
"""The values that can't be unpickled here, by their index."""


def _loaded(values: Iterable[bytes], unreadable: _Unreadable) -> Iterator[Any]:
    """The values, with a `FailedItem` for each that can't be unpickled here, which `unreadable` gets, too."""
    for index, value in enumerate(values):
        try:
            found = map_call.load(value)
        except Exception as error:  # of any kind: it runs code of the value's class
            text = f"its value can't be unpickled here: {type(error).__name__}: {error}"
            found = unreadable[index] = FailedItem(index, text, 1)
        yield found


def _mapped(values: Iterable[bytes]) -> MappedValues:
    return MappedValues(_loaded(values, {}))


class _Packed:
    """Becomes a `MappedValues` where it is unpickled, so that only that process needs the classes of the values."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = list(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self._values,)


@dataclass(frozen=True)
class Written:
    """What a map returns."""

    value: Any
    notice: str = ""
    """How it differs from the values, if it does."""
    lacks: bool = False
    """Whether it lacks some of them."""


class Writer:
    """Makes a list of the values."""

    path: Path | None = None
    """The file that is written; `None`: none."""

    def check(self, value: bytes) -> None:
        """Raises an exception if values such as this one can't be written."""

    def __call__(self, read: Read) -> Written:
        unreadable: dict[int, FailedItem] = {}
        written = self._write(lambda: _loaded(read(), unreadable))
        if not unreadable:
            return written
        first = next(iter(unreadable.values()))
        what = f"{counted(len(unreadable), 'item')} failed in the end: {_listed(list(unreadable))}: {first.error}"
        return Written(written.value, ". ".join(filter(None, (written.notice, what))), lacks=True)

    def _write(self, read: Callable[[], Iterator[Any]]) -> Written:
        return Written(MappedValues(read()))


class _Stored(Writer):
    """Makes it for another process."""

    def __call__(self, read: Read) -> Written:
        return Written(_Packed(read()))


class _FileWriter(Writer):
    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path

    def _write(self, read: Callable[[], Iterator[Any]]) -> Written:
        new = self.path.with_name(f".{self.path.name}.new")
        try:
            lost, notices = self._fill(new, read)
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)
        return Written(self.path, ". ".join(notices), lost)

    def _fill(self, path: Path, read: Callable[[], Iterator[Any]]) -> tuple[bool, list[str]]:
        """Writes the values to a file; returns whether it lacks some, and how it differs from them."""
        raise NotImplementedError


class _JsonLines(_FileWriter):
    """A line for each value; `{"failed": "…"}` for an item that failed, and for a value that isn't plain data."""

    def check(self, value: bytes) -> None:
        _json(map_call.load(value))

    def _fill(self, path: Path, read: Callable[[], Iterator[Any]]) -> tuple[bool, list[str]]:
        lost, infinite = list[int](), list[int]()
        with open(path, "wb") as file:
            for index, value in enumerate(read()):
                try:
                    line, is_finite = _json({"failed": value.error} if isinstance(value, FailedItem) else value)
                except ConfigurationError as error:  # of a later value: the others are not lost for it
                    lost.append(index)
                    line, is_finite = _json({"failed": str(error)})
                if not is_finite:
                    infinite.append(index)
                file.write(line)
        found = []
        if lost:
            found.append(
                f"{counted(len(lost), 'value')} can't be written as JSON, as the lines in {self.path.name} say: "
                f"{_listed(lost)}"
            )
        if infinite:
            found.append(
                f"NaN and infinity are null in {self.path.name}, because JSON has no form for them: in "
                f"{counted(len(infinite), 'line')}, {_listed(infinite)}"
            )
        return bool(lost), found


def _json(value: Any) -> tuple[bytes, bool]:
    """A value as a line of JSON, and whether all of its numbers are finite: the others become `null`.

    Raises:
        ConfigurationError: It has no such form.
    """
    is_finite = True
    try:
        try:
            text = _dumped(value)
        except (TypeError, ValueError):
            value = _plain(value)
            try:
                text = _dumped(value)
            except ValueError:
                value, is_finite = _plain(value, lambda number: number if math.isfinite(number) else None), False
                text = _dumped(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"a value can't be written as JSON ({error}): return plain data, write .parquet, or leave out output="
        ) from error
    try:
        return f"{text}\n".encode(), is_finite
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only escape
        return f"{json.dumps(value, default=_moment)}\n".encode(), is_finite


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_moment)


def _moment(value: Any) -> str:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not plain data")


class _Parquet(_FileWriter):
    """A row for each value: a dict is its columns, anything else the column `value`. A failed item's row is empty."""

    def check(self, value: bytes) -> None:
        import pyarrow

        _table(pyarrow, [map_call.load(value)], None)

    def _fill(self, path: Path, read: Callable[[], Iterator[Any]]) -> tuple[bool, list[str]]:
        """Reads all values twice: a type that fits only the first of them may change later ones, such as 2.5 to 2."""
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.schema([])
        for rows in _batches(read()):
            try:
                found = [schema, _table(pyarrow, rows, None).schema]
                schema = pyarrow.unify_schemas(found, promote_options="permissive")
            except pyarrow.ArrowException as error:
                raise _unfit(error) from error
        if not len(schema):
            schema = pyarrow.schema([("value", pyarrow.null())])
        with parquet.ParquetWriter(path, schema) as writer:
            for rows in _batches(read()):
                writer.write_table(_table(pyarrow, rows, schema))
        return False, []


def _batches(values: Iterator[Any]) -> Iterator[list[Any]]:
    return iter(lambda: list(islice(values, ROWS)), [])


def _table(pyarrow: Any, values: Sequence[Any], schema: Any) -> Any:
    """A table with these values as its rows, with the columns of `schema`, or with those that they need."""
    try:
        try:
            return _columns(pyarrow, values, schema)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            return _columns(pyarrow, list(map(_plain, values)), schema)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _unfit(error) from error


def _columns(pyarrow: Any, objects: Sequence[Any], schema: Any) -> Any:
    rows = list(map(_row, objects))
    names = list(dict.fromkeys(name for row in rows for name in row)) if schema is None else schema.names
    columns = {name: [row.get(name) for row in rows] for name in names}
    table = pyarrow.table(columns, schema=schema)
    for name, values in columns.items():
        if pyarrow.types.is_temporal(table[name].type):  # a date drops the time; microseconds, what is below them
            for value, kept in zip(values, table[name].to_pylist(), strict=True):
                if value != kept:
                    raise ValueError(f"{value!r} would be written as {kept!r}")
    return table


def _row(value: Any) -> Mapping[str, Any]:
    if isinstance(value, FailedItem):
        return {}
    value = _fields(value)
    if not isinstance(value, dict):
        return {"value": _unwrapped(value)}
    row = {str(name): _unwrapped(each) for name, each in value.items()}
    if len(row) < len(value):
        raise ValueError(f"two keys of {list(value)} are the same column")
    return row


def _unfit(error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"values can't be rows of a Parquet file ({error}): return plain data, of the same types for each item, write "
        ".jsonl, or leave out output="
    )


def _plain(value: Any, number: Callable[[float], Any] | None = None) -> Any:
    """A value with plain data in place of arrays, tensors, numbers of NumPy, and dataclasses, at any depth.

    Args:
        value: The value.
        number: What to make of each float.
    """
    if isinstance(value, FailedItem):
        return value
    value = _fields(_unwrapped(value))
    if isinstance(value, dict):
        return {_unwrapped(name): _plain(each, number) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each, number) for each in value]
    return number(value) if number is not None and isinstance(value, float) else value


def _unwrapped(value: Any) -> Any:
    """An array, a tensor, or a number of NumPy as plain data."""
    return value.tolist() if hasattr(value, "tolist") else value


def _fields(value: Any) -> Any:
    """A dataclass as a dict."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def _listed(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:_MOST_NAMED])) + (", …" if len(indices) > _MOST_NAMED else "")


def writer(output: str | os.PathLike[str] | None, *, stored: bool) -> Writer:
    """What makes the value of a map.

    Args:
        output: The file to write; `None` for a list.
        stored: Whether the value is for other processes.

    Raises:
        ConfigurationError: The file can't be written.
    """
    if output is None:
        return _Stored() if stored else Writer()
    path = Path(os.fsdecode(output))
    kind = {".jsonl": _JsonLines, ".parquet": _Parquet}.get(path.suffix)
    if kind is None:
        raise ConfigurationError(f"output={str(path)!r} must end in .jsonl or .parquet")
    if kind is _Parquet:
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise ConfigurationError(
                f"output={str(path)!r} needs pyarrow: run %pip install pyarrow, or write .jsonl"
            ) from None
    if not path.parent.is_dir():
        raise ConfigurationError(f"output={str(path)!r}: there is no folder {path.parent}")
    return kind(path.absolute() if stored else path)
