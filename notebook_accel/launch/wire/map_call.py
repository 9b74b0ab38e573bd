"""What a rank of a map runs, and the form in which items and values travel: a blob each."""

from __future__ import annotations

import io
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.events import ItemsDone, ItemsGiven, ItemsRequested, answers, emit, emit_now
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.payload import WithArguments

BROKEN = 75
"""The exit code of a rank whose device can't be used any longer."""
_UNUSABLE = ("CUDA error", "HIP error", "device-side assert")
"""What says in an exception that every later call on the device will fail, too."""


@dataclass(frozen=True)
class MapCall:
    """Calls a function with the items that the driver gives to this rank, until there are no more."""

    function: Callable[..., Any]
    setup: Callable[[], Any] | None = None
    """Called first. What it returns, unless that is `None`, is the second argument of the function."""

    @property
    def __name__(self) -> str:
        from notebook_accel.config.call_arguments import name_of  # which only the driver needs

        return name_of(self.function)

    def __call__(self) -> None:
        prepared = None if self.setup is None else self.setup()
        more = () if prepared is None else (prepared,)
        given = answers(ItemsGiven)
        emit(ItemsRequested())
        while (work := given.get()).data:
            emit_now(self.answer(work, more))  # if the next item ends this process, this one is not blamed

    def answer(self, work: ItemsGiven, more: Sequence[Any]) -> ItemsDone:
        """Calls the function with these items, and `more` as further arguments."""
        began = time.perf_counter()
        errors: list[str] = []
        data: list[bytes] = []
        size = work.batch or 1
        for start in range(0, len(work.data), size):
            part = work.data[start : start + size]
            try:
                items = [load(blob) for blob in part]
                found = self._call(items, more) if work.batch else [self.function(items[0], *more)]
                data += map(dump_value, found)
                errors += [""] * len(part)
            except (Exception, SystemExit) as error:  # what exits for one item must not end the map
                del data[start:]
                data += [b""] * len(part)
                errors += [_told(error)] * len(part)
                if any(sign in str(error) for sign in _UNUSABLE) and "out of memory" not in str(error):
                    sys.stderr.write(
                        f"{_told(error)}: this rank is replaced, since its device can't be used any longer\n"
                    )
                    sys.stderr.flush()
                    os._exit(BROKEN)
        return ItemsDone(errors, time.perf_counter() - began, data)

    def _call(self, items: list[Any], more: Sequence[Any]) -> Sequence[Any]:
        found = self.function(items, *more)
        if isinstance(found, (str, bytes, dict)) or not hasattr(found, "__len__"):
            raise TypeError(
                f"{self.__name__} has returned {type(found).__name__}, but with batch= it has to return a list with a "
                "value for each item"
            )
        if len(found) != len(items):
            raise ValueError(f"{self.__name__} has returned {len(found)} values for {len(items)} items")
        return list(found)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2000]


class _NotPlainError(Exception):
    """An object needs more than Python's own pickler."""


class _Plain(pickle.Pickler):
    """Pickles what needs no definition of the notebook, and is on no device: several times faster than cloudpickle."""

    def reducer_override(self, obj: Any) -> Any:
        module = getattr(obj if isinstance(obj, type) or callable(obj) else type(obj), "__module__", None) or ""
        if module == "__main__" or module.partition(".")[0] in ("torch", "cloudpickle"):
            raise _NotPlainError
        return NotImplemented


@dataclass(frozen=True)
class _Packed:
    """A value as `payload.pack_value` packs it."""

    parts: Sequence[bytes]


def dump(item: Any) -> bytes:
    """Pickles an item for a rank. Raises what pickling raises."""
    return dump_named(item)[0]


def dump_named(item: Any) -> tuple[bytes, bytes]:
    """The same, and bytes that tell the item from others, the same in each kernel."""
    if (plain := _plain(item)) is not None:
        return plain, plain
    return pickle.dumps(WithArguments(_only, payload.pack_arguments((item,), {})), 5), payload.named(item)


def dump_value(value: Any) -> bytes:
    """Pickles a value for the driver; tensors come back on the CPU. Raises what pickling raises."""
    plain = _plain(value)
    if plain is not None:
        return plain
    return pickle.dumps(_Packed([bytes(part) for part in payload.pack_value(value, payload.known_definitions())]), 5)


def load(blob: bytes | bytearray | memoryview) -> Any:
    """The item or the value."""
    found = pickle.loads(blob)
    if isinstance(found, WithArguments):
        return found()
    return payload.unpack_value(found.parts) if isinstance(found, _Packed) else found


def _only(item: Any) -> Any:
    return item


def _plain(value: Any) -> bytes | None:
    stream = io.BytesIO()
    try:
        _Plain(stream, protocol=5).dump(value)
    except Exception:  # of any kind; the other way tells what is wrong
        return None
    return stream.getvalue()
