"""Finds the largest tensors and arrays that the user's frames can reach, by the names that they have there.

It looks at what exists, and keeps, copies, and computes nothing. Whatever user code has defined may fail, and is then
left out.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from notebook_accel.events import Frame, LiveArray
from notebook_accel.launch.rank.out_of_memory.assignments import line_that_assigned
from notebook_accel.launch.wire import stack_frames

MOST = 6
_SMALLEST = 2**20
"""Bytes from which on something is listed."""
_DEPTH = 4
"""How many containers may be in each other."""
_MOST_ITEMS = 100_000
"""Objects that are looked at."""
_CONTAINERS = (list, tuple, set, frozenset, deque)
_LONGEST_NAME = 100


@dataclass
class _Holder:
    """What is reached through one name."""

    name: str
    device: str = ""
    nbytes: int = 0
    count: int = 0
    what: str = ""
    """The type and shape of the only one."""
    frame: Frame | None = None

    def event(self) -> LiveArray:
        what = self.what if self.count == 1 else f"{self.count:,} tensors and arrays"
        return LiveArray(self.name[:_LONGEST_NAME], self.device, self.nbytes, what, self.frame)


def largest(frames: Iterable[tuple[FrameType, int]], *, nameless: bool) -> list[LiveArray]:
    """The largest of what the frames can reach, the largest first.

    Args:
        frames: Each with the line that it is at, innermost first.
        nameless: Whether to count the tensors that no name reaches, too, such as those that autograd keeps.
    """
    search = _Search()
    for frame, lineno in frames:
        if stack_frames.is_user_file(frame.f_code.co_filename):
            for name, value in list(frame.f_locals.items()):
                search.add(name, value, line_that_assigned(frame.f_code, name, lineno))
            for name, value in list(frame.f_globals.items()):
                search.add(name, value, None)
    if nameless:
        search.add_nameless()
    found = sorted(search.holders, key=lambda holder: -holder.nbytes)
    return [holder.event() for holder in found if holder.nbytes >= _SMALLEST][:MOST]


@dataclass
class _Search:
    """Adds up what names reach; of what several reach, only the first counts."""

    holders: list[_Holder] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """The addresses of memory, and the ids of objects, that were counted."""
    left: int = _MOST_ITEMS

    def add(self, name: str, value: Any, frame: Frame | None) -> None:
        """Adds what a name reaches: a holder for each device."""
        if name.startswith("__") or isinstance(value, (ModuleType, type)):
            return
        self._add_all(name, self._reach(value, _DEPTH), frame)

    def add_nameless(self) -> None:
        """Adds the tensors that exist and that no name has reached."""
        torch = sys.modules.get("torch")
        if torch is not None:
            tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
            self._add_all("", (found for each in tensors if (found := self._memory(each))), None)

    def _add_all(self, name: str, found: Iterator[tuple[str, int, str]], frame: Frame | None) -> None:
        by_device: dict[str, _Holder] = {}
        for device, nbytes, what in found:
            holder = by_device.setdefault(device, _Holder(name, device, frame=frame))
            holder.nbytes, holder.count, holder.what = holder.nbytes + nbytes, holder.count + 1, what
        self.holders += by_device.values()

    def _reach(self, value: Any, depth: int) -> Iterator[tuple[str, int, str]]:
        """The device, bytes, and description of each tensor and array that a value reaches."""
        self.left -= 1
        if self.left < 0 or id(value) in self.seen:
            return
        own = self._memory(value)
        if own is not None:
            yield own
        inner = _gradient(value) if _is_tensor(value) else _inner(value) if depth else []
        if inner:
            self.seen.add(id(value))
            for each in inner:
                yield from self._reach(each, depth - 1)

    def _memory(self, value: Any) -> tuple[str, int, str] | None:
        """What a tensor or an array holds, unless it was counted; `None` for anything else."""
        try:
            found = _of_tensor(value) or _of_array(value) or _of_bytes(value)
        except Exception:  # a tensor without memory, or a class of the user's
            return None
        if found is None or found[0] in self.seen:
            return None
        self.seen.add(found[0])
        return found[1:]


def _inner(value: Any) -> list[Any]:
    """What a container or an object of the user's holds."""
    try:
        if isinstance(value, Mapping):
            return list(value.values())
        if isinstance(value, _CONTAINERS):
            return list(value)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.nn.Module):
            return [*value.parameters(), *value.buffers()]
        return list(vars(value).values())
    except Exception:
        return []


def _gradient(tensor: Any) -> list[Any]:
    return [tensor.grad] if tensor.is_leaf and tensor.grad is not None else []


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(type(value), torch.Tensor)


def _of_tensor(value: Any) -> tuple[int, str, int, str] | None:
    """The address, device, bytes, and description of a tensor; its storage counts, which views share."""
    if not _is_tensor(value):
        return None
    storage = value.untyped_storage()
    shape = ", ".join(map(str, value.shape))
    return (
        storage.data_ptr(),
        str(value.device),
        storage.nbytes(),
        f"{str(value.dtype).removeprefix('torch.')} [{shape}]",
    )


def _of_array(value: Any) -> tuple[int, str, int, str] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not issubclass(type(value), numpy.ndarray):
        return None
    shape = ", ".join(map(str, value.shape))
    whole = value
    while issubclass(type(whole.base), numpy.ndarray):
        whole = whole.base
    return whole.ctypes.data, "cpu", whole.nbytes, f"{value.dtype} [{shape}]"


def _of_bytes(value: Any) -> tuple[int, str, int, str] | None:
    if type(value) not in (bytes, bytearray) or len(value) < _SMALLEST:
        return None
    return id(value), "cpu", len(value), type(value).__name__
