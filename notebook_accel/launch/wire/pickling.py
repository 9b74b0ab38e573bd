"""Picklers for calls to the ranks, and for the values that they return.

Both write protocol 5 with cloudpickle, and keep large CPU buffers out of the stream. Tensors are reduced
at the level of their storage, so views and tied weights stay shared, and a parameter stays a parameter.
"""

from __future__ import annotations

import ctypes
import dis
import functools
import getpass
import importlib
import inspect
import io
import linecache
import operator
import os
import pickle
import re
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar

import cloudpickle

from notebook_accel.launch.wire.mirrored import definitions

OUT_OF_BAND = 32 * 1024
"""Buffers from this many bytes on stay out of the pickle stream."""
_Cached = type(functools.lru_cache(len))


_CODE_FIELDS = (
    *("argcount", "posonlyargcount", "kwonlyargcount", "nlocals", "stacksize", "flags", "code", "consts", "names"),
    *("varnames", "filename", "name", *(("qualname",) if sys.version_info >= (3, 11) else ()), "firstlineno"),
    *("linetable", *(("exceptiontable",) if sys.version_info >= (3, 11) else ()), "freevars", "cellvars"),
)
"""What `types.CodeType` takes, in its order; each is an attribute of a code object, behind `co_`."""

_IPYTHONS = ("exit", "quit", "open", "get_ipython")
_NOTHING = object()


class _Complete(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """Sends what cloudpickle leaves out, or rebuilds wrongly, and leaves out what is IPython's.

    What is rebuilt wrongly is in `definitions.py`. Left out are imported modules of a class of their own, such as
    `torch.backends` and `torch.backends.cudnn`, which are sent by name; `getpass`, which notebooks replace, by name
    too; the globals that only the body of a class in a function reads, such as a decorator of a method, or an
    annotation that is a text; and the file that code comes from, for which cloudpickle writes `<dynamic-code>` since
    3.1.3. Whatever names a line of a cell finds its text by that file: tracebacks, stacks, warnings, debuggers,
    `inspect.getsource`.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.CodeType):
            return types.CodeType, tuple(getattr(obj, f"co_{field}") for field in _CODE_FIELDS)
        if isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType:
            name = obj.__name__
            if sys.modules.get(name) is obj:
                return importlib.import_module, (name,)
        if isinstance(obj, (types.FunctionType, types.MethodType)) and obj == _getpass():
            return _getpass, ()
        if isinstance(obj, _Cached) and obj.__module__ == "__main__":
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        own = definitions.reduce(obj)
        if own is not None:
            return self.reduced_class(obj, own) if isinstance(obj, type) else own
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and type(obj).__module__ == "__main__":
            return definitions.reduce_singleton(obj)
        if isinstance(obj, types.FunctionType) and isinstance(reduced, tuple):  # a function by value
            found = _class_body_names(obj.__code__) & obj.__globals__.keys()
            found |= _annotated(obj.__annotations__, obj.__globals__)
            sent = reduced[2][1]["__globals__"]
            sent.update({name: obj.__globals__[name] for name in sorted(found - sent.keys())})
            for name in _of_ipython(obj.__globals__).intersection(sent):
                del sent[name]
            return definitions.reduce_dispatch(obj) or reduced
        return reduced

    def reduced_class(self, cls: type, reduced: definitions.Reduced) -> definitions.Reduced:
        """What is sent of a class that is sent by value."""
        return reduced


def _of_ipython(namespace: Mapping[str, Any]) -> set[str]:
    """The names of the notebook that IPython has defined there, of what belongs to its process.

    Without them, a function has Python's own of the same names, and no `get_ipython`, as in a script.
    """
    shell = getattr(namespace.get("get_ipython"), "__self__", None)
    hidden = getattr(shell, "user_ns_hidden", {})
    return {name for name in _IPYTHONS if name in namespace and namespace[name] is hidden.get(name, _NOTHING)}


def _class_body_names(code: types.CodeType) -> set[str]:
    """The global names that the bodies of classes in a function read, unless they assign them first."""
    found: set[str] = set()
    for inner in code.co_consts:
        if not isinstance(inner, types.CodeType):
            continue
        found |= _class_body_names(inner)
        if inner.co_flags & inspect.CO_OPTIMIZED:  # the body of a function
            continue
        own: set[str] = set()
        for instruction in dis.get_instructions(inner):
            if instruction.opname == "STORE_NAME":
                own.add(instruction.argval)
            elif instruction.opname == "LOAD_NAME" and instruction.argval not in own:
                found.add(instruction.argval)
    return found - {"__name__"}


_OF_TYPING = ("typing", "typing_extensions", "types")
"""The modules of the classes of what stands for a type."""
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")


def _annotated(annotations: Mapping[str, Any], namespace: Mapping[str, Any]) -> set[str]:
    """The names of types and modules in annotations that are texts, which `get_type_hints` looks up."""
    texts = " ".join(text for text in annotations.values() if isinstance(text, str))
    return {name for name in _NAME.findall(texts) if _is_hint(namespace.get(name))}


def _is_hint(value: Any) -> bool:
    return isinstance(value, (type, types.ModuleType)) or type(value).__module__ in _OF_TYPING


class _OutOfBand(_Complete):
    """Keeps large buffers out of the stream, and copies device tensors to the host."""

    storage_device = "cpu"
    """Where device tensors are rebuilt: `cpu`, or `rank` for the device of the rank."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        self.buffers: list[memoryview] = []
        self.device_bytes = 0
        self._memories: dict[tuple[str, int, int], _Memory] = {}
        super().__init__(self.stream, protocol=5, buffer_callback=self._set_aside)

    def _set_aside(self, buffer: pickle.PickleBuffer) -> bool:
        """Returns whether the buffer stays in the stream, as the pickle protocol asks."""
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND:
            return True
        self.buffers.append(raw)
        return False

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _Memory):
            return self._reduce_memory(obj)
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(obj, (torch.storage.TypedStorage, torch.UntypedStorage)):
            typed = isinstance(obj, torch.storage.TypedStorage)
            untyped = obj._untyped_storage if typed else obj
            if untyped.device.type != "meta":
                # A tensor returns a new storage object at each call, so sharing is detected by the memory itself.
                where = (str(untyped.device), untyped.data_ptr() or id(untyped), untyped.nbytes())
                memory = self._memories.setdefault(where, _Memory(untyped))
                return _typed_storage, (memory, obj.dtype if typed else torch.uint8)
        return super().reducer_override(obj)

    def _reduce_memory(self, memory: _Memory) -> Any:
        where = "cpu"
        if memory.storage.device.type != "cpu":
            self.device_bytes += memory.storage.nbytes()
            memory.storage, where = memory.storage.cpu(), self.storage_device
        size = memory.storage.nbytes()
        if not size:
            return _storage, (pickle.PickleBuffer(b""), where)
        view = (ctypes.c_ubyte * size).from_address(memory.storage.data_ptr())
        view.owner = memory.storage  # the buffer keeps the memory alive
        return _storage, (pickle.PickleBuffer(view), where)


class _Memory:
    """The memory of a storage, on the host once it is pickled."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage


class _MainByValue(_Complete):
    """Sends what `__main__` defines by value, into the `__main__` of the process that unpickles it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.filenames: set[str] = set()
        self.used_names: set[str] = set()
        """The names of variables, attributes, and imports in the functions that were pickled by value."""
        self.definitions: dict[str, Any] = {}
        """The names and values that the other `__main__` must have."""
        self.sent: set[str] = set()
        """The qualified names of the functions and classes that were pickled."""
        self.referenced: list[Any] = []
        """The modules and classes, and the modules of functions, that were pickled by name."""
        self._main = sys.modules["__main__"].__dict__
        # Functions with these globals get the other `__main__` as their globals, rather than a namespace of their own,
        # so that code over there can pickle their classes by reference.
        self.globals_ref[id(self._main)] = _MainNamespace()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, _MainNamespace):
            return _main_namespace, ()
        if isinstance(obj, types.FunctionType) and not _is_from_file(obj):
            self.filenames.add(obj.__code__.co_filename)
            self.used_names.update(used_names(obj.__code__))
        is_definition = isinstance(obj, (types.FunctionType, type, _Cached)) and obj.__module__ == "__main__"
        if is_definition and find(obj.__qualname__) is obj:
            self.sent.add(obj.__qualname__)
            outermost = obj.__qualname__.partition(".")[0]
            self.definitions[outermost] = self._main[outermost]
        reduced = super().reducer_override(obj)
        if isinstance(obj, types.ModuleType):
            self.referenced.append(obj)
        elif reduced is NotImplemented and isinstance(obj, (types.FunctionType, type)):
            self.referenced.append(obj if isinstance(obj, type) else sys.modules.get(obj.__module__))
        return reduced

    def reduced_class(self, cls: type, reduced: definitions.Reduced) -> definitions.Reduced:
        annotations = vars(cls).get("__annotations__", {}) if cls.__module__ == "__main__" else {}
        named = self.values_of(_annotated(annotations, self._main))
        return (*reduced[:2], {**reduced[2], "named": named}, *reduced[3:]) if named else reduced

    def values_of(self, names: Iterable[str]) -> dict[str, Any]:
        """What is sent of the global names that a class needs. Those of a function are sent with it by cloudpickle."""
        return {name: self._main[name] for name in sorted(names)}

    def sources(self) -> dict[str, str]:
        """The text of the cells that the pickled functions come from, by file name."""
        cells = {name: "".join(linecache.getlines(name)) for name in self.filenames if not os.path.exists(name)}
        return {name: text for name, text in cells.items() if text}


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of the functions and classes in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def used_names(code: types.CodeType) -> Iterator[str]:
    """The names of variables, attributes, and imports in a function's code, and in that of functions within it."""
    for each in codes(code):
        yield from each.co_names


def _is_from_file(function: types.FunctionType) -> bool:
    """Whether it comes from the file of its module, not from a cell. Cheaper than checking that the file exists."""
    return getattr(sys.modules.get(function.__module__), "__file__", None) == function.__code__.co_filename


class CallPickler(_MainByValue, _OutOfBand):
    """Pickles a call for the ranks."""

    storage_device = "rank"


class DefinitionPickler(CallPickler):
    """Pickles what a rank asks for during a call, into the stream alone. What the rank knows of it, it keeps."""

    def _set_aside(self, buffer: pickle.PickleBuffer) -> bool:
        return True

    def reduced_class(self, cls: type, reduced: definitions.Reduced) -> definitions.Reduced:
        return (*super().reduced_class(cls, reduced)[:5], definitions.fill_new_class)


class WorkerPickler(_MainByValue):
    """Pickles a process object for a worker that a rank spawns; queues, locks and tensors as multiprocessing does."""

    # A view of what is registered there, by torch too. The C pickler reads it from the class.
    dispatch_table: ClassVar[Any] = ChainMap(
        ForkingPickler._extra_reducers,  # type: ignore[attr-defined]
        cloudpickle.Pickler.dispatch_table,
    )

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        super().__init__(self.stream, protocol=5)


class ReturnPickler(_OutOfBand):
    """Pickles a return value for the notebook; definitions that the notebook sent are pickled by name."""

    def __init__(self, sent: Iterable[str]) -> None:
        super().__init__()
        self._sent = {id(found): name for name in sent if (found := find(name)) is not None}

    def reducer_override(self, obj: Any) -> Any:
        name = self._sent.get(id(obj))
        if name is not None:
            return _from_main, (name,)
        return super().reducer_override(obj)

    def reduced_class(self, cls: type, reduced: definitions.Reduced) -> definitions.Reduced:
        return (*reduced[:5], definitions.fill_new_class)


class NamePickler(_OutOfBand):
    """Pickles a value only to tell it from others, with names in place of what `__main__` defines.

    What goes by value has an identity in each kernel: the same cell would not define the same class twice.
    """

    def reducer_override(self, obj: Any) -> Any:
        if (
            isinstance(obj, (types.FunctionType, type))
            and obj.__module__ == "__main__"
            and find(obj.__qualname__) is obj
        ):
            return _from_main, (obj.__qualname__,)
        return super().reducer_override(obj)


def load(stream: bytes | bytearray | memoryview, buffers: Sequence[Any]) -> Iterable[Any]:
    """Yields the objects that were dumped one after the other by a pickler of this module."""
    unpickler = pickle.Unpickler(io.BytesIO(stream), buffers=iter(buffers))
    while True:
        try:
            yield unpickler.load()
        except EOFError:
            return


class _MainNamespace:
    """Stands for the globals of `__main__`, wherever this is unpickled."""


def _main_namespace() -> dict[str, Any]:
    return sys.modules["__main__"].__dict__


def _from_main(name: str) -> Any:
    return operator.attrgetter(name)(sys.modules["__main__"])


def find(name: str) -> Any:
    """The object in `__main__` with a qualified name, or `None`."""
    first, _, rest = name.partition(".")
    try:
        value = vars(sys.modules["__main__"])[first]
        return operator.attrgetter(rest)(value) if rest else value
    except (KeyError, AttributeError):
        return None


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    """A `functools.lru_cache` with an empty cache."""
    return functools.lru_cache(**parameters)(function)


def _getpass() -> Any:
    """What `getpass.getpass` is in this process, at this moment."""
    return getpass.getpass


def _torch() -> Any:
    """Imports torch, as `Any`: its types are incomplete."""
    import torch

    return torch


def _typed_storage(untyped: Any, dtype: Any) -> Any:
    torch = _torch()

    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


_rank_device: Callable[[], str] | None = None


def set_rank_device(device: Callable[[], str]) -> None:
    """Sets where this rank loads tensors that were on a device in the notebook: the device that `device` returns."""
    global _rank_device  # unpickling calls `_storage` by name, and has no other way to hand it something
    _rank_device = device


def _storage(buffer: Any, where: str) -> Any:
    """A storage over `buffer` itself, without a copy."""
    torch = _torch()

    view = memoryview(buffer)
    storage = torch.frombuffer(view, dtype=torch.uint8).untyped_storage() if view.nbytes else torch.UntypedStorage(0)
    if where == "rank" and _rank_device is not None and (device := _rank_device()) != "cpu":
        return torch.empty(0, dtype=torch.uint8).set_(storage).to(device).untyped_storage()
    return storage


def dump_worker(process: Any) -> bytes:
    """Pickles a process object together with what `__main__` must hold for it.

    A worker of a pool gets its tasks later, by name, so it needs all definitions of the notebook. A DataLoader's worker
    does not, and should not get the data that the launched function may use.
    """
    pickler = WorkerPickler()
    pickler.dump(process)
    for_tasks = {} if _loads_data(process) else _worker_definitions()
    pickler.dump({**for_tasks, **pickler.definitions})
    return pickler.stream.getvalue()


_from_notebook: set[str] = set()
"""The names of functions and classes in this rank's `__main__` that came from the notebook."""


def add_worker_definitions(names: Iterable[str]) -> None:
    """Has these names of `__main__` sent to the workers that this rank starts, since their tasks may need them."""
    _from_notebook.update(names)


def _worker_definitions() -> dict[str, Any]:
    main = sys.modules["__main__"].__dict__
    return {name: main[name] for name in _from_notebook if name in main}


def _loads_data(process: Any) -> bool:
    return str(getattr(getattr(process, "_target", None), "__module__", "")).startswith("torch.utils.data")


def load_worker(stream: bytes) -> Any:
    """Unpickles a process object in its worker, and puts the definitions that came with it into `__main__`."""
    process, definitions = load(stream, ())
    vars(sys.modules["__main__"]).update(definitions)
    return process
