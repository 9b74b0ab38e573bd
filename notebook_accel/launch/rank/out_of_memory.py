"""What holds a rank's memory: looked for when it runs out of memory, and when it grows large."""

from __future__ import annotations

import dis
import gc
import linecache
import pickle
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

from notebook_accel import events
from notebook_accel.events import Frame, LargestArrays, LiveArray, MemorySnapshot, OutOfMemory
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.system import limits
from notebook_accel.launch.wire import stack_frames

_TEXTS = ("can't allocate memory", "out of memory", "std::bad_alloc")
"""How torch, its backends, and C++ say so in a `RuntimeError`."""
_DEVICES = ("cuda", "hip", "mps", "xpu")
MOST = 6
_SMALLEST = 2**20
"""Bytes from which on something is listed."""
_DEPTH = 4
"""How many containers may be in each other."""
_MOST_ITEMS = 100_000
"""Objects that are looked at."""
_CONTAINERS = (list, tuple, set, frozenset, deque)
_LONGEST_NAME = 100
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST")
"""The last two, of Python 3.13, have a pair of names."""
MOST_BYTES = 64 * 2**20
"""The most bytes of a snapshot that is sent."""
_LIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
"""States of blocks in use; the last two are the names of one state in torch's documentation and in its code."""
_NO_LINES = (
    "To see which lines made the tensors, call torch.cuda.memory._record_memory_history() at the beginning of the "
    "function"
)
_LARGE_SHARE = 0.2
"""The share of the memory that was free at first from which on a process is large."""
_GROWTH = 1.2
"""How much it has to grow until it is looked at again."""


def device_of(error: BaseException, text: str) -> str:
    """The kind of device whose memory has run out: `cpu`, `cuda`, ...; empty if the exception says nothing of it.

    Args:
        error: The exception.
        text: Its text.
    """
    kind, text = type(error), text.lower()
    if issubclass(kind, MemoryError):
        return "cpu"
    named = next((device for device in _DEVICES if device in text), "")
    if kind.__name__ == "OutOfMemoryError":
        return (named or "cuda").replace("hip", "cuda")
    if issubclass(kind, RuntimeError) and any(each in text for each in _TEXTS):
        return named.replace("hip", "cuda") or "cpu"
    return ""


def examine(error: BaseException, text: str) -> OutOfMemory | None:
    """What held the memory; `None` if the exception says nothing of it. Emits a snapshot of a CUDA device's memory."""
    device = device_of(error, text)
    if not device:
        return None
    lines: list[LiveArray] = []
    note = ""
    torch = sys.modules.get("torch")
    # Otherwise, the memory is another library's, or torch is built without CUDA: there is nothing to take.
    if device == "cuda" and torch is not None and torch.cuda.is_initialized():
        try:
            lines, data, note = cuda_snapshot(torch)
            if data:
                events.emit(MemorySnapshot([data]))
        except Exception as problem:  # a private function of torch's, and hardly any memory
            note = f"There is no snapshot of the memory: {type(problem).__name__}: {problem}"
    return OutOfMemory(device, lines or _named(error, device), note)


def _named(error: BaseException, device: str) -> list[LiveArray]:
    try:
        found = largest(_frames(error), nameless=True)
    except Exception:  # the search needs memory itself
        return []
    return [array for array in found if array.device.partition(":")[0] == device]


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames that the exception came through, innermost first."""
    trace: Any = vars(BaseException)["__traceback__"].__get__(error)
    yield from reversed(list(traceback.walk_tb(trace)))


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
    """The largest tensors and arrays that the user's frames can reach, the largest first, by the names they have there.

    It looks at what exists, and keeps, copies, and computes nothing. Whatever user code has defined may fail, and is
    then left out.

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


def line_that_assigned(code: CodeType, name: str, lineno: int) -> Frame | None:
    """The last line up to `lineno` that assigns the name, or the last one of all, as in a loop.

    Returns:
        That line; `None` if the name is an argument, or is assigned elsewhere.
    """
    lines = sorted(_lines(code, name))
    if not lines:
        return None
    found = max((line for line in lines if line <= lineno), default=lines[-1])
    return Frame(code.co_filename, found, code.co_name, linecache.getline(code.co_filename, found).strip())


def _lines(code: CodeType, name: str) -> set[int]:
    found, line = set(), code.co_firstlineno
    starts = dict(dis.findlinestarts(code))
    for instruction in dis.get_instructions(code):
        line = starts.get(instruction.offset) or line
        if instruction.opname in _STORES:
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            if name in (names[:1] if instruction.opname.endswith("LOAD_FAST") else names):
                found.add(line)
    return found


def cuda_snapshot(torch: Any) -> tuple[list[LiveArray], bytes, str]:
    """The live blocks by the line that allocated them, the largest first; the snapshot, pickled; and a note.

    Source: "Understanding CUDA Memory Usage" in torch's documentation, and `torch.cuda.memory`. The snapshot is a dict:
    `segments`, each with its `blocks`, each of these with its `size`, its `state` and the `frames` that allocated it;
    `device_traces`, the last allocations. https://docs.pytorch.org/memory_viz shows a pickle of it.

    Args:
        torch: The module, or a stand-in whose `cuda` is a `FakeCuda`.
    """
    snapshot = torch.cuda.memory._snapshot()
    lines = by_line(snapshot)
    data = pickle.dumps(snapshot)
    if len(data) > MOST_BYTES:
        data = pickle.dumps({**snapshot, "device_traces": [[] for _ in snapshot.get("device_traces", ())]})
    notes = [] if lines else [_NO_LINES]
    if len(data) > MOST_BYTES:
        notes.append(f"The snapshot of the memory is not saved, since it has {len(data) / 1e6:.0f} MB")
        data = b""
    return lines, data, ". ".join(notes)


def by_line(snapshot: Mapping[str, Any]) -> list[LiveArray]:
    """The live blocks, added up by the line of the user's code that allocated them; empty if that was not recorded."""
    sizes: dict[tuple[str, Frame], list[int]] = {}
    for device, size, frame in _blocks(snapshot):
        sizes.setdefault((device, frame), []).append(size)
    found = [
        LiveArray("", device, sum(each), f"{len(each):,} block{'s' if len(each) > 1 else ''}", frame)
        for (device, frame), each in sizes.items()
    ]
    return sorted(found, key=lambda array: -array.nbytes)[:MOST]


def _blocks(snapshot: Mapping[str, Any]) -> Iterator[tuple[str, int, Frame]]:
    """The device, the size, and the user's line of each live block for which the line is known."""
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] in _LIVE:
                # Innermost first, among C++ frames if those were recorded.
                frames = [
                    Frame(each["filename"], each["line"], each["name"])
                    for each in reversed(block.get("frames", ()))
                    if each["filename"].endswith(".py") or each["filename"].startswith("<ipython")
                ]
                user = stack_frames.innermost_user_frame(frames)
                if user is not None:
                    yield f"cuda:{segment['device']}", block["size"], user


class Growth:
    """Looks at the frames of a rank's main thread, from another thread, each time that the process has grown.

    Args:
        main_ident: The thread.
        free: Bytes that are free now; by default, what the system or the container has.
    """

    def __init__(self, main_ident: int, free: int | None = None) -> None:
        self._main_ident = main_ident
        self._free = free
        self._next: float | None = None
        """The size from which on it is looked at."""

    def sample(self, resident: int) -> list[LargestArrays]:
        """The largest tensors and arrays, if the process has grown."""
        if self._next is None:
            self._next = _LARGE_SHARE * (limits.free_memory() if self._free is None else self._free)
        if resident < self._next:
            return []
        self._next = _GROWTH * resident
        try:
            found = largest(_stack(self._main_ident), nameless=False)
        except Exception:  # the user's code keeps running, and may change what is looked at
            return []
        return [LargestArrays(found, resident)] if found else []


def _stack(ident: int) -> list[tuple[FrameType, int]]:
    frame = stack_sampler.current_frames().get(ident)
    return [] if frame is None else [(each, each.f_lineno or 0) for each in stack_sampler.innermost(frame, sys.maxsize)]
