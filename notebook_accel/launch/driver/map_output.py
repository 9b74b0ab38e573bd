"""What a map returns: a list of its values, or the file that they are written to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver.map_work import FailedItem
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import map_call
from notebook_accel.rank_spans import counted

_ROWS = 10_000
"""The rows that are written to a Parquet file at once."""
_MOST_NAMED = 10


class MappedValues(list[Any]):
    """The values in the order of the items, with a `FailedItem` for each item that failed."""

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.failures = [each for each in self if isinstance(each, FailedItem)]
        """The items that failed, by their index."""


def _mapped(values: Iterable[bytes]) -> MappedValues:
    return MappedValues(map(map_call.load, values))


class _Packed:
    """Becomes a `MappedValues` where it is unpickled, so that only that process needs the classes of the values."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self._values = list(values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self._values,)


class Writer:
    """Makes a list of the values, which are pickled.

    Args:
        stored: Whether it is for another process.
    """

    folder: Path | None = None
    """Where values may be kept until they are written; `None`: in memory."""

    def __init__(self, *, stored: bool = False) -> None:
        self._make = _Packed if stored else _mapped

    def check(self, value: bytes) -> None:
        """Raises an exception if values such as this one can't be written."""

    def __call__(self, values: Iterable[bytes]) -> Any:
        return self._make(values)


class _FileWriter(Writer):
    def __init__(self, path: Path) -> None:
        self._path, self.folder = path, path.parent

    def check(self, value: bytes) -> None:
        self._check(map_call.load(value))

    def __call__(self, values: Iterable[bytes]) -> Any:
        new = self._path.with_name(f".{self._path.name}.new")
        self._write(new, map(map_call.load, values))
        new.replace(self._path)
        return self._path

    def _check(self, value: Any) -> None:
        raise NotImplementedError

    def _write(self, path: Path, values: Iterator[Any]) -> None:
        raise NotImplementedError


class _JsonLines(_FileWriter):
    """A line for each value; `{"failed": "…"}` for an item that failed, and for a value that isn't plain data."""

    def _check(self, value: Any) -> None:
        self._line(value)

    def _write(self, path: Path, values: Iterator[Any]) -> None:
        lost: list[int] = []
        with open(path, "wb") as file:
            for index, value in enumerate(values):
                try:
                    line = self._line(value)
                except ConfigurationError as error:  # of a later value: the others are not lost for it
                    lost.append(index)
                    line = self._line({"failed": str(error)})
                file.write(line)
        if lost:
            named = ", ".join(map(str, lost[:_MOST_NAMED])) + (", …" if len(lost) > _MOST_NAMED else "")
            lines = f"as the lines in {self._path.name} say"
            console.current.notice(f"{counted(len(lost), 'value')} can't be written as JSON, {lines}: {named}")

    def _line(self, value: Any) -> bytes:
        found = {"failed": value.error} if isinstance(value, FailedItem) else value
        try:
            text = json.dumps(found, ensure_ascii=False, default=_listed)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"a value can't be written as JSON ({error}): return plain data, write .parquet, or leave out output="
            ) from error
        try:
            return f"{text}\n".encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can only escape
            return f"{json.dumps(found, default=_listed)}\n".encode()


class _Parquet(_FileWriter):
    """A row for each value: a dict is its columns, anything else the column `value`. A failed item's row is empty."""

    def _check(self, value: Any) -> None:
        import pyarrow

        self._table(pyarrow, [self._row(value)], None)

    def _write(self, path: Path, values: Iterator[Any]) -> None:
        import pyarrow
        from pyarrow import parquet

        writer = None
        try:
            while rows := [self._row(value) for value in islice(values, _ROWS)]:
                table = self._table(pyarrow, rows, None if writer is None else writer.schema)
                writer = writer or parquet.ParquetWriter(path, table.schema)
                writer.write_table(table)
            if writer is None:
                parquet.write_table(pyarrow.table({"value": []}), path)
        finally:
            if writer is not None:
                writer.close()

    def _table(self, pyarrow: Any, rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
        """These rows, with the columns of all of them, or with those of the rows before, which `schema` has."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        if schema is None:
            names = names or ["value"]
        else:
            if more := [repr(name) for name in names if name not in schema.names]:
                raise ConfigurationError(
                    f"values beyond the first {_ROWS:,} have the further columns {', '.join(more)}: return the same "
                    "keys for each item, or write .jsonl"
                )
            names = schema.names
        try:
            return pyarrow.table({name: [row.get(name) for row in rows] for name in names}, schema=schema)
        except (pyarrow.ArrowException, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"values can't be rows of a Parquet file ({error}): return plain data, of the same types for each "
                "item, write .jsonl, or leave out output="
            ) from error

    def _row(self, value: Any) -> Mapping[str, Any]:
        if isinstance(value, FailedItem):
            return {}
        if isinstance(value, dict):
            return {str(name): _plain(each) for name, each in value.items()}
        return {"value": _plain(value)}


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _listed(value: Any) -> Any:
    """An array, a tensor, or a number of NumPy as plain data."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")


def writer(output: str | os.PathLike[str] | None, *, stored: bool) -> Writer:
    """What makes the value of a map.

    Args:
        output: The file to write; `None` for a list.
        stored: Whether the value is for other processes.

    Raises:
        ConfigurationError: The file can't be written.
    """
    if output is None:
        return Writer(stored=stored)
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
