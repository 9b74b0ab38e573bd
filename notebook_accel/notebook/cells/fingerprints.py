"""Fingerprints of variables, which tell cheaply whether a variable's content has changed since it was sent.

A fingerprint is a hash of what pickling the value yields. It differs from the payload in three ways: large arrays are
read in samples, a large tensor is known by its version counter and its address, and functions and classes of
`__main__` by what they hold. Only fingerprints that were taken in one process can be compared, except for
`Fingerprint.complete`.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import time
import types
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle

from notebook_accel import garbage_collection

BRIEFLY = 0.1
"""Seconds of CPU time for a fingerprint that is taken before each cell."""
_CONSTANTS = (int, float, complex, bool, str, bytes, range, type(None), types.ModuleType, types.BuiltinFunctionType)
_PLAIN = 4 << 20
"""Bytes of a value's pickle, apart from arrays, beyond which the value gets no fingerprint."""
_ARRAYS = 4 << 20
"""Bytes of a value's arrays and tensors that are read completely; the others are sampled."""
_BLOCK = 4096
"""Bytes of one sample."""
_COMPLETE = 2 << 30
"""Bytes of sampled arrays beyond which they are never read completely."""
_CHUNK = 1 << 18
"""Bytes from which a string within a value is treated as an array."""


@dataclass(frozen=True)
class Fingerprint:
    """What a value held at some moment."""

    digest: bytes
    memory: frozenset[int] = frozenset()
    """The addresses of its arrays and tensors."""
    is_sampled: bool = False
    """Whether an array was too large to be read completely."""
    complete: int | None = None
    """A checksum of all sampled arrays, the same in every process; `None` if it was not asked for or takes too long."""


_CONSTANT = Fingerprint(b"")


def take(value: Any, *, complete: bool = False, seconds: float = 1.0) -> Fingerprint | None:
    """Takes the fingerprint of a value; `None` if that is impossible or takes too long.

    Args:
        value: The value.
        complete: Whether to read sampled arrays completely, too.
        seconds: The CPU time after which to give up. A first time may import modules.
    """
    if type(value) in _CONSTANTS or is_imported(value):
        return _CONSTANT
    with garbage_collection.paused():  # a full one, once torch is imported, takes longer than a fingerprint may take
        sink = HashSink(seconds)
        pickler = FingerprintPickler(sink)
        try:
            pickler.dump(value)
            sink.check_time()
            checksum = sink.complete() if complete and sink.sampled else None
        except Exception:  # what pickling the user's objects may raise
            return None
        finally:
            pickler.clear_memo()
    return Fingerprint(sink.hash.digest(), frozenset(sink.memory), bool(sink.sampled), checksum)


def differ(before: Fingerprint | None, now: Fingerprint | None, *, complete: bool) -> bool | None:
    """Whether a value has changed between two fingerprints; `None` if that can't be told.

    Args:
        before: Its fingerprint then.
        now: Its fingerprint now.
        complete: Whether arrays that were sampled must be equal completely. Otherwise, equal samples are enough.
    """
    if before is None or now is None:
        return None
    if now.digest != before.digest:
        return True
    if not (complete and now.is_sampled):
        return False
    return None if None in (before.complete, now.complete) else before.complete != now.complete


def is_imported(value: Any) -> bool:
    """Whether a function or class belongs to a module, whose code the ranks import themselves."""
    if not isinstance(value, (types.FunctionType, type)):
        return False
    return value.__module__ != "__main__" and "<" not in value.__qualname__


class TooExpensiveError(Exception):
    """The value is too large or takes too long."""


class HashSink:
    """Hashes what a pickler writes, within bounds."""

    def __init__(self, seconds: float) -> None:
        self.hash = hashlib.sha256()
        self.memory: set[int] = set()
        self.sampled: list[Any] = []
        """The buffers and arrays that were not read completely."""
        self._plain = 0
        self._arrays = 0
        self._large = 0
        # Not the wall clock, since a busy machine would then make the answer depend on chance.
        self._deadline = time.thread_time() + seconds

    def check_time(self) -> None:
        if time.thread_time() > self._deadline:
            raise TooExpensiveError

    def write(self, data: Any) -> None:
        """Takes a part of the pickle."""
        self.check_time()
        if len(data) >= _CHUNK:
            self.add(memoryview(data).cast("B"))
            return
        self._plain += len(data)
        if self._plain > _PLAIN:
            raise TooExpensiveError
        self.hash.update(data)

    def add(self, raw: memoryview) -> None:
        """Takes an array's memory, completely if there is room."""
        if not self.has_room(raw.nbytes):
            self.sampled.append(raw)
            self.sample(raw)
            return
        self._arrays += raw.nbytes
        self.hash.update(raw)

    def has_room(self, nbytes: int) -> bool:
        """Whether another array of this size is read completely."""
        return self._arrays + nbytes <= _ARRAYS

    def add_strided(self, array: Any) -> None:
        """Takes an array whose elements are not side by side in memory."""
        if self.has_room(array.nbytes):
            self.add(memoryview(array.tobytes()))
            return
        self.sampled.append(array)
        self.hash.update(array.flat[:: max(array.size // _BLOCK, 1)].tobytes())

    def sample(self, raw: memoryview) -> None:
        """Takes blocks from all over an array's memory."""
        self.check_time()
        self._large += 1
        for block in _blocks(raw, 64 if self._large < 16 else 4):
            self.hash.update(block)

    def complete(self) -> int | None:
        """A checksum of the arrays that were sampled; `None` if they are too large."""
        if sum(each.nbytes for each in self.sampled) > _COMPLETE:
            return None
        checksum = 0
        for each in self.sampled:
            checksum = zlib.crc32(each if isinstance(each, memoryview) else each.tobytes(), checksum)
        return checksum


def _blocks(raw: memoryview, count: int) -> Iterator[memoryview]:
    """Blocks that are evenly spaced, the first and the last among them."""
    step = max((raw.nbytes - _BLOCK) // (count - 1), 1)
    for number in range(count - 1):
        yield raw[number * step : number * step + _BLOCK]
    yield raw[-_BLOCK:]


class FingerprintPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """Writes to a sink. What it writes can't be loaded."""

    def __init__(self, sink: HashSink) -> None:
        self._sink = sink
        super().__init__(sink, protocol=5, buffer_callback=lambda buffer: sink.add(buffer.raw()))

    def reducer_override(self, obj: Any) -> Any:
        self._sink.check_time()
        # Neither is imported here: without it, there is no value of its types.
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(obj, torch.Tensor):
            return self._reduce_tensor(obj)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and isinstance(obj, numpy.ndarray) and not obj.dtype.hasobject:
            return self._reduce_array(obj, numpy)
        if isinstance(obj, types.FunctionType) and not is_imported(obj):
            return _stand_in, (obj.__qualname__,), _parts_of_function(obj)
        if isinstance(obj, type) and obj.__module__ == "__main__":
            return _stand_in, (obj.__qualname__,), _parts_of_class(obj)
        return super().reducer_override(obj)

    def _reduce_tensor(self, tensor: Any) -> Any:
        facts: tuple[Any, ...] = (type(tensor).__qualname__, str(tensor.dtype), str(tensor.device))
        facts = (*facts, tuple(tensor.shape), tensor.requires_grad)
        try:
            version = tensor._version
        except RuntimeError:  # a tensor of inference mode has none
            version = None
        try:
            storage = tensor.untyped_storage()
            address, size = storage.data_ptr(), storage.nbytes()
            facts = (*facts, tensor.stride(), tensor.storage_offset())
        except (RuntimeError, NotImplementedError):  # a sparse one, for example, has no storage
            return _stand_in, (*facts, version, id(tensor))
        is_new = size > 0 and address not in self._sink.memory
        self._sink.memory |= {address} if address and size else set()  # empty ones may have the same address
        if tensor.device.type != "cpu":
            return _stand_in, (*facts, version, address)
        is_small = self._sink.has_room(size)
        if address and is_new:  # a fake tensor has no address
            raw = memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")
            if is_small or version is None:
                self._sink.add(raw)
            else:
                self._sink.sample(raw)
        return _stand_in, facts if is_small else (*facts, version, address)

    def _reduce_array(self, array: Any, numpy: Any) -> Any:
        plain = numpy.asarray(array)
        self._sink.memory |= {plain.__array_interface__["data"][0]} if plain.nbytes else set()
        if plain.flags.forc:
            self._sink.add(memoryview(plain.ravel("K").view(numpy.uint8)))
        else:
            self._sink.add_strided(plain)
        facts = (type(array).__qualname__, str(plain.dtype), plain.shape, plain.flags.f_contiguous)
        attributes = {} if isinstance(array, numpy.memmap) else getattr(array, "__dict__", {})
        return _stand_in, facts, attributes


def _parts_of_function(function: types.FunctionType) -> tuple[Any, ...]:
    """What a function holds by itself. What it reads from its module is sent, and compared, under its own name."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # it is empty
            cells.append(None)
    return function.__code__.co_code, function.__defaults__, function.__kwdefaults__, cells, vars(function)


def _parts_of_class(cls: type) -> tuple[Any, ...]:
    """What a class holds, apart from what Python adds to it, some of it only when it is first used."""
    own = {
        name: value
        for name, value in vars(cls).items()
        if not (name.startswith("__") and name.endswith("__"))
        and name != "_abc_impl"
        and not isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))
    }
    return cls.__bases__, own


def _stand_in(*facts: Any) -> None:
    """Is named in the pickle in place of what would rebuild the value."""
