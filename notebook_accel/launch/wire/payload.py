"""The payload of a call: a small one is sent in the message; a large one is written once, to memory files.

Every rank maps these files copy-on-write, so that ranks share their memory until they write to it.
"""

from __future__ import annotations

import errno
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from notebook_accel.errors import PayloadError
from notebook_accel.events import Call, to_wire
from notebook_accel.launch.system import memory
from notebook_accel.launch.wire import cell_names, notebook_names, pickling, stack_frames
from notebook_accel.launch.wire.mirrored import notebook_state
from notebook_accel.launch.wire.pickling import CallPickler, NamePickler, ReturnPickler, load
from notebook_accel.launch.wire.stream import Channel, Message

_SMALL = 16 * 1024
"""Bytes up to which a call is sent in the message: to create a file, and to map it in each rank, takes longer."""


@dataclass(frozen=True)
class Unpacked:
    """A call as the rank runs it."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    definitions: Set[str]
    """The qualified names of the definitions that the notebook's `__main__` has sent to this rank's."""

    def __call__(self) -> Any:
        return self.function(*self.args, **self.kwargs)


@dataclass(frozen=True)
class Payload:
    """A call, packed for the ranks. Close it after its last launch."""

    fds: Sequence[int]
    """The memory files, if there are any."""
    layout: tuple[int, ...]
    """Lengths in bytes of its parts: the mirrored state, the call, then the out-of-band buffers."""
    parts: Sequence[bytes] = ()
    """The parts themselves, of a small call."""
    unpacked: Unpacked | None = None
    """The call itself, for a rank in this process."""
    names: Set[str] = frozenset()
    """The names in the notebook's `__main__` of the functions and classes that it contains."""
    used_names: Set[str] = frozenset()
    """The names of variables, attributes, and imports in its functions."""
    referenced: Sequence[Any] = ()
    """The modules and classes that its functions name."""
    namespace: Mapping[str, Any] | None = None
    """The `__main__` that its names are from, if that is this process's."""

    def close(self) -> None:
        memory.release(self.fds)

    def __enter__(self) -> Payload:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wrap_in_process(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Payload:
    """The payload for a rank in this process: nothing is pickled or copied."""
    main = vars(sys.modules["__main__"])
    names = (name for name, value in main.items() if getattr(value, "__module__", None) == "__main__")
    return Payload((), (), unpacked=Unpacked(function, tuple(args), dict(kwargs), frozenset(names)))


def pack(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, mirror: bool = True
) -> Payload:
    """Pickles a call, by default together with the state of this process, which the ranks mirror.

    Raises:
        PayloadError: Something that the function captures, or an argument, cannot be pickled. The message names it.
    """
    pickler = CallPickler()
    try:
        pickler.dump((function, tuple(args), dict(kwargs)))
        # Dumped last and by the same pickler, which by now has seen everything that the call needs of `__main__`.
        pickler.dump((dict(pickler.definitions), frozenset(pickler.sent)))
    except Exception as error:
        from notebook_accel.launch.wire import unpicklable

        raise PayloadError(unpicklable.explain_unpicklable(function, args, kwargs, error)) from error
    if pickler.device_bytes:
        from notebook_accel.launch.wire import unpicklable

        warnings.warn(unpicklable.describe_device_tensors(function, args, kwargs, pickler.device_bytes), stacklevel=4)
    used = pickler.used_names.union(pickling.used_names(function.__code__) if hasattr(function, "__code__") else ())
    payload = write(pickler, notebook_state.capture() if mirror else None)
    return replace(payload, names=frozenset(pickler.definitions), used_names=used)


def write(pickler: CallPickler, state: notebook_state.State | None) -> Payload:
    """Builds the payload from a pickler that dumped the call, then further arguments, and last the definitions.

    Args:
        pickler: The pickler.
        state: The state that the ranks mirror from now on; `None` to leave theirs unchanged.

    Raises:
        PayloadError: There is no room for it.
    """
    packed = from_parts(pack_parts(pickler, state))
    return replace(packed, referenced=pickler.referenced, namespace=vars(sys.modules["__main__"]))


def pack_parts(pickler: CallPickler, state: notebook_state.State | None) -> list[memoryview]:
    """The parts of what a pickler has dumped, for `from_parts` or `unpack_parts`."""
    cells = {filename: (cell_names.name_of(filename), text) for filename, text in pickler.sources().items()}
    head = pickle.dumps((state, cells, notebook_names.defined_in(vars(sys.modules["__main__"]))), protocol=5)
    return [memoryview(head), pickled(pickler), *pickler.buffers]


def from_parts(parts: Sequence[memoryview]) -> Payload:
    """Builds the payload that has these parts, as `parts_of` returns them.

    Raises:
        PayloadError: There is no room for it.
    """
    layout = tuple(part.nbytes for part in parts)
    if sum(layout) <= _SMALL:
        return Payload((), layout, [bytes(part) for part in parts])
    try:
        return Payload(memory.write(parts), layout)
    except (OSError, MemoryError) as error:
        size = sum(layout)
        advice = "Load large data inside the function or the cell, or free memory in the notebook"
        if getattr(error, "errno", None) == errno.EFBIG:
            advice = "Raise the limit of a file's size (ulimit -f), or load the data inside the function or the cell"
        captured = f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
        raise PayloadError(
            f"the call captures {captured}, and no memory file of that size could be written ({error}). {advice}."
        ) from error


def parts_of(packed: Payload) -> list[bytes]:
    """The parts of a payload, in the order of its layout."""
    if not packed.fds:
        return list(map(bytes, packed.parts))
    starts = memory.offsets(packed.layout)[:-1]
    return [memory.read(packed.fds, *place) for place in zip(starts, packed.layout, strict=True)]


def sources(packed: Payload) -> dict[str, tuple[str, str]]:
    """The cells that the functions of a call come from, by file name: the name that the user sees, and the text."""
    head = memory.read(packed.fds, 0, packed.layout[0]) if packed.fds else packed.parts[0]
    _, found, _ = pickle.loads(head)
    return dict(found)


def send(packed: Payload, channel: Channel) -> None:
    """Sends a call to a rank.

    Raises:
        OSError: The rank is gone.
    """
    header, _ = to_wire(Call(packed.layout))
    channel.send(header, packed.parts, packed.fds)


def receive(message: Message, layout: Sequence[int]) -> Unpacked:
    """Applies the notebook's state, and unpickles the call. Runs in the rank; closes the memory files.

    Objects that were dumped between the call and the definitions are appended to the function's arguments.
    """
    found = unpack_parts(message.blobs or _mapped(message.fds, layout))
    (function, args, kwargs), *more, (definitions, sent) = found
    vars(sys.modules["__main__"]).update(definitions)
    # Not the launched function: it is never the task of a worker, and may hold much data.
    name = getattr(function, "__name__", None)
    pickling.add_worker_definitions(definitions.keys() - {name})
    _known_definitions.update(sent)
    return Unpacked(function, (*args, *more), kwargs, _known_definitions)


def unpack_parts(parts: Sequence[Any]) -> Iterable[Any]:
    """Adopts the state, names, and cells that came with a payload's parts; returns the objects that were dumped."""
    state, cells, names = pickle.loads(parts[0])
    if state is not None:
        notebook_state.apply(state)
    notebook_names.adopt(names, _known_definitions)
    cell_names.add({filename: name for filename, (name, _) in cells.items()})
    stack_frames.cache_cell_sources({filename: text for filename, (_, text) in cells.items()})
    return load(parts[1], parts[2:])


def _mapped(fds: Sequence[int], layout: Sequence[int]) -> list[memoryview]:
    """Maps memory files and closes them; returns their parts. These keep the mapping, and so the memory, alive."""
    try:
        view = memoryview(memory.map_private(fds))
    finally:
        memory.close(fds)
    starts = memory.offsets(layout)[:-1]
    return [view[start : start + length] for start, length in zip(starts, layout, strict=True)]


_known_definitions: set[str] = set()
"""The qualified names of the definitions that this rank has received, over all calls."""


def known_definitions() -> Set[str]:
    """The qualified names of the notebook's definitions that this rank has."""
    return _known_definitions


def forget_definitions(names: Set[str]) -> None:
    """Forgets definitions whose names this rank has bound again: they are no longer those of the notebook."""
    _known_definitions.difference_update([each for each in _known_definitions if each.partition(".")[0] in names])


def pack_value(value: Any, sent: Set[str]) -> list[memoryview]:
    """Pickles a return value: the stream, then its out-of-band buffers. Nothing at all for `None`.

    Raises:
        PayloadError: It cannot be pickled. The message names the part that cannot.
    """
    if value is None:
        return []
    pickler = ReturnPickler(sent)
    try:
        pickler.dump(value)
    except Exception as error:
        from notebook_accel.launch.wire import unpicklable

        raise PayloadError(unpicklable.explain_unreturnable(value, error)) from error
    return [pickled(pickler), *pickler.buffers]


def named(value: Any) -> bytes:
    """Bytes that tell a value from others, the same in each kernel. Raises what pickling raises."""
    pickler = NamePickler()
    pickler.dump(value)
    return b"".join([pickler.stream.getvalue(), *pickler.buffers])


def pickled(pickler: CallPickler | ReturnPickler) -> memoryview:
    """What a pickler has written, not copied.

    A `getbuffer()` keeps the stream from being closed, which Python 3.13 reports when both are collected as part
    of a cycle, to which a traceback is enough.
    """
    return memoryview(pickler.stream.getvalue())


def unpack_value(blobs: Sequence[Any]) -> Any:
    """The value of `pack_value`; its arrays and tensors keep the memory of `blobs`."""
    if not blobs:
        return None
    (value,) = load(blobs[0], blobs[1:])
    return value


@dataclass(frozen=True)
class WithArguments:
    """A function, and arguments for it that an earlier call was packed with.

    They are unpickled on the ranks alone. In the notebook that would replace its variables: a pickled function has the
    values of the global variables that it uses, and sets them.
    """

    function: Callable[..., Any]
    arguments: Sequence[bytes]
    """As `pack_arguments` returns them."""

    @property
    def __name__(self) -> str:
        return self.function.__name__

    def __call__(self) -> Any:
        main = vars(sys.modules["__main__"])
        own = dict(main)
        (args, kwargs), definitions = load(self.arguments[0], self.arguments[1:])
        main.update({**definitions, **own})  # what came with the function is newer
        return self.function(*args, **kwargs)


def pack_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[bytes]:
    """Pickles arguments, and the definitions of the notebook that they need: the stream, then its buffers."""
    pickler = CallPickler()
    pickler.dump((tuple(args), dict(kwargs)))
    pickler.dump(dict(pickler.definitions))
    return [pickler.stream.getvalue(), *map(bytes, pickler.buffers)]
