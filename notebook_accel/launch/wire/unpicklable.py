"""Names the object that cannot be pickled: the variable, where it is used, and what to do instead."""

from __future__ import annotations

import contextlib
import dis
import functools
import io
import linecache
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from notebook_accel.launch.wire import cell_names
from notebook_accel.launch.wire.pickling import CallPickler, ReturnPickler, codes

_DEPTH = 30
_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_SLOTS = ("__dict__", "__weakref__")
"""Attributes that Python makes for each class, and that are never pickled."""


class _Step(NamedTuple):
    """One step from an object to a part of it."""

    text: str
    """The step as code: `lock`, `.lock`, `[0]`."""
    user: types.FunctionType | types.MethodType | None
    """The function that uses the variable, when the step is a variable."""
    value: Any


def explain_unpicklable(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> str:
    """Why this call cannot be sent to the ranks."""
    roots = [_Step("", None, function)]
    roots += [_Step(f"args[{index}]", None, value) for index, value in enumerate(args)]
    roots += [_Step(f"kwargs[{name!r}]", None, value) for name, value in kwargs.items()]
    for root in roots:
        if not _fails(root.value, CallPickler):
            continue
        path = [root, *_descend(root.value, CallPickler, set(), _DEPTH)]
        return f"{_name(function)} can't be sent to the ranks: {_blame(path)} {_advice(path[-1].value)}{_why(error)}"
    return f"{_name(function)} can't be sent to the ranks.{_why(error)}"


def explain_unsendable(name: str, value: Any, where: str, error: Exception) -> str:
    """Why a variable of the notebook, which a line of a cell reads, cannot be sent to the ranks.

    Args:
        name: The variable.
        value: Its value.
        where: The line that reads it.
        error: What pickling it raised.
    """
    path = [_Step(name, None, value), *_descend(value, CallPickler, set(), _DEPTH)]
    culprit = path[-1].value
    what = f"`{_code(path)}` is a {_type(culprit)}" if len(path) > 1 else f"it is a {_type(culprit)}"
    return f"`{name}` can't be sent to the ranks, for {where}: {what}. {_advice(culprit, 'on the ranks')}{_why(error)}"


def explain_unreturnable(value: Any, error: Exception) -> str:
    """Why this value cannot be sent back to the notebook."""
    path = [_Step("result", None, value), *_descend(value, _Returning, set(), _DEPTH)]
    culprit = path[-1].value
    return (
        f"returned a value that can't be sent back to the notebook: `{_code(path)}` is a {_type(culprit)}. "
        f"Return plain data instead: numbers, arrays, tensors, a model's state_dict().{_why(error)}"
    )


def describe_device_tensors(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], size: int
) -> str:
    """The warning for captured tensors that are on a device of the notebook; `size` is their bytes together."""
    found: list[str] = []
    stack = [_Step("", None, function), *(_Step(f"args[{i}]", None, value) for i, value in enumerate(args))]
    stack += [_Step(f"kwargs[{name!r}]", None, value) for name, value in kwargs.items()]
    seen: set[int] = set()
    while stack and len(found) < 5:
        step = stack.pop()
        if id(step.value) in seen:
            continue
        seen.add(id(step.value))
        device = getattr(step.value, "device", None)
        if getattr(device, "type", "cpu") not in ("cpu", "meta") and hasattr(step.value, "nbytes"):
            found.append(f"`{step.text}` ({step.value.nbytes / 1e6:.1f} MB)")
        else:
            stack += [part._replace(text=_join(step.text, part.text)) for part in _parts(step.value)]
    names = ", ".join(found) or "a tensor"
    return (
        f"{_name(function)} captures tensors that are on a device of the notebook: {names}; {size / 1e6:.1f} MB were "
        "copied through the host. Each rank gets its own copy, on its own device."
    )


def where_used(function: types.FunctionType | types.MethodType, name: str) -> str:
    """The first line of the function that reads a variable: `In[3] line 4: with lock:`, or nothing if not found."""
    for code in codes(function.__code__):
        line = code.co_firstlineno
        for instruction in dis.get_instructions(code):
            starts = getattr(instruction, "line_number", None) or instruction.starts_line  # an attribute from 3.13
            if starts and not isinstance(starts, bool):
                line = starts
            if _loads_variable(instruction) and instruction.argval == name:
                text = linecache.getline(code.co_filename, line).strip()
                place = f"{cell_names.name_of(code.co_filename)} line {line}"
                return f"{place}: `{text}`" if text else place
    return ""


class _Returning(ReturnPickler):
    def __init__(self) -> None:
        super().__init__(())


def _fails(value: Any, pickler: Callable[[], Any]) -> bool:
    try:
        pickler().dump(value)
    except Exception:
        return True
    return False


def _descend(value: Any, pickler: Callable[[], Any], seen: set[int], depth: int) -> list[_Step]:
    """The steps from a value that fails to the innermost part of it that fails."""
    return _innermost(value, pickler, seen, depth) or []


def _innermost(value: Any, pickler: Callable[[], Any], seen: set[int], depth: int) -> list[_Step] | None:
    """As `_descend`; `None` if the value fails only through a part that was examined before, in a reference cycle."""
    seen.add(id(value))
    leads_back = False
    for step in _parts(value) if depth else ():
        if id(step.value) in seen:
            leads_back = leads_back or not isinstance(step.value, _PLAIN)
        elif _fails(step.value, pickler):
            deeper = _innermost(step.value, pickler, seen, depth - 1)
            if deeper is not None:
                is_own_class = isinstance(step.value, type) and not step.text
                return [] if is_own_class and not deeper else [step, *deeper]  # the object says more than its class
            leads_back = True
    return None if leads_back else []


def _parts(value: Any) -> Iterator[_Step]:
    """The parts of a value that a pickler would pickle with it."""
    if isinstance(value, types.FunctionType):
        yield from _captures(value)
    elif isinstance(value, types.MethodType):
        yield _Step("", None, value.__func__)
        yield _Step(".__self__", None, value.__self__)
    elif isinstance(value, (staticmethod, classmethod)):
        yield _Step("", None, value.__func__)
    elif isinstance(value, property):
        yield from (_Step("", None, part) for part in (value.fget, value.fset, value.fdel) if part is not None)
    elif isinstance(value, functools.partial):
        yield _Step(".func", None, value.func)
        yield from (_Step(f".args[{i}]", None, item) for i, item in enumerate(value.args))
        yield from (_Step(f".keywords[{key!r}]", None, item) for key, item in value.keywords.items())
    elif isinstance(value, dict):
        yield from (_Step(f"[{key!r}]", None, item) for key, item in list(value.items()))
    elif isinstance(value, (list, tuple)):
        yield from (_Step(f"[{i}]", None, item) for i, item in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from (_Step(" (an element)", None, item) for item in value)
    elif isinstance(value, type):
        if value.__module__ == "__main__":
            yield from (_Step(f".{key}", None, item) for key, item in list(vars(value).items()) if key not in _SLOTS)
            yield from (_Step("", None, base) for base in value.__bases__)
    else:
        yield from (_Step(f".{key}", None, item) for key, item in _attributes(value))
        yield _Step("", None, type(value))


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """An object's attributes, including those in slots."""
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # a proxy may raise whatever it likes
        found.update(value.__dict__)
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(Exception):
                found.setdefault(name, getattr(value, name))
    return list(found.items())


def _captures(function: types.FunctionType) -> Iterator[_Step]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield _Step(name, function, cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    names = {
        instruction.argval
        for code in codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for name in sorted(names & function.__globals__.keys()):
        yield _Step(name, function, function.__globals__[name])
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    yield from (_Step(f"a default of {function.__name__}()", None, value) for value in defaults)


def _loads_variable(instruction: dis.Instruction) -> bool:
    """Whether it reads a variable from outside of its function, and not an attribute of the same name."""
    name = instruction.opname
    return name.startswith("LOAD_") and not name.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER", "LOAD_CONST"))


def _blame(path: Sequence[_Step]) -> str:
    """`it uses `box.lock` (a lock) in helper(), at In[3] line 4: ...`."""
    for index in range(len(path) - 1, -1, -1):
        step = path[index]
        if step.user is not None:
            what = f"it uses `{_code(path[index:])}`, a {_type(path[-1].value)}"
            used = where_used(step.user, step.text)
            return f"{what} (in {step.user.__qualname__}(){', ' + used if used else ''})."
    return f"`{_code(path)}` is a {_type(path[-1].value)}." if _code(path) else f"it is a {_type(path[-1].value)}."


def _code(path: Sequence[_Step]) -> str:
    return functools.reduce(_join, (step.text for step in path), "")


def _join(left: str, right: str) -> str:
    """Joins two steps: `a` and `.b` make `a.b`. A step that is a variable replaces what came before it."""
    return left + right if right[:1] in (".", "[", " ", "") else right


def _advice(culprit: Any, where: str = "inside the function") -> str:
    if isinstance(culprit, io.IOBase):
        return f"An open file belongs to one process: pass its path, and open it {where}."
    if isinstance(culprit, Iterator):
        return f"An iterator can't be copied: pass a list, or create it {where}."
    if isinstance(culprit, threading.Thread) or type(culprit).__module__ == "_thread":  # locks, and parts of threads
        return f"Locks and threads belong to one process: create it {where}."
    return f"Create it {where}, or pass what it is made from."


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__name__
    return f"{name.removeprefix('<locals>.')}()"


def _type(value: Any) -> str:
    kind = type(value)
    if kind is type:
        return "class"
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _why(error: Exception) -> str:
    return f" ({type(error).__name__}: {error})"
