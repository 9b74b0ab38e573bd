"""Finds attributes of modules that the notebook has changed. Ranks import modules themselves, so they don't have them.

Only what a function uses is looked at: the modules and classes that its pickle names, and the user's own modules that
these import. Of a module of the user's, what its file assigns is compared with what it has. Of an installed package,
only functions are found that come from the notebook.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from notebook_accel.launch.engines import preloader
from notebook_accel.launch.system import installed
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.plain_text import both_ends

_MOST_MODULES = 50
_MOST_NAMES = 6
_MOST_TEXT = 40
_noticed: set[tuple[str, int]] = set()
"""The changes that the user knows: what was set, and to which object."""


class _Defined(NamedTuple):
    """What the file of a module assigns."""

    constants: dict[str, Any]
    """The names that are assigned once, each with its value."""
    functions: frozenset[str]
    """The functions and classes that are defined once, without a decorator."""
    names: frozenset[str]
    """All names that the file may bind."""
    is_open: bool
    """Whether it may bind others: it imports `*`, or has a `__getattr__`."""


def notice(packed: Payload, function: str) -> str:
    """What to tell the user about the changes that were not noticed before; empty if there are none.

    Args:
        packed: The call, whose functions name modules and classes, or import modules.
        function: Where the user may make the changes as well.
    """
    imported = [sys.modules[name] for name in packed.used_names & sys.modules.keys()]
    referenced = {id(each): each for each in (*packed.referenced, *imported)}.values()
    found = [each for each in _changes(referenced) if (each[0], id(each[1])) not in _noticed]
    if not found:
        return ""
    _noticed.update((what, id(value)) for what, value in found)
    texts = [f"{what} = {_text(value)}" for what, value in found[:_MOST_NAMES]]
    more = f", and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return (
        f"the notebook has set {', '.join(texts)}{more}, but ranks import modules themselves, and don't see that: set "
        f"{'it' if len(found) == 1 else 'them'} in {function} as well"
    )


def _text(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return str(name) if name else both_ends(repr(value), _MOST_TEXT)


def _changes(referenced: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """The changed attributes, as `module.name`, each with its value."""
    main = vars(sys.modules["__main__"])
    own: list[ModuleType] = []
    for each in referenced:
        module = each if isinstance(each, ModuleType) else sys.modules.get(each.__module__)
        if module is None or module.__name__ == "__main__":
            continue
        if _is_own(module):
            own.append(module)
        elif not module.__name__.startswith("notebook_accel"):
            prefix = each.__name__ if each is module else f"{each.__module__}.{each.__qualname__}"
            for name, value in list(vars(each).items()):
                if type(value) is FunctionType and value.__globals__ is main:
                    yield f"{prefix}.{name}", value
    for module in _with_imported(own):
        yield from _changes_of(module)


def _is_own(module: ModuleType) -> bool:
    """Whether a module comes from a file of the user's."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.endswith(".py") and _is_users(file)


@functools.cache
def _is_users(file: str) -> bool:
    return not installed.is_installed(file) and f"{os.sep}notebook_accel{os.sep}" not in file


def _with_imported(modules: Sequence[ModuleType]) -> list[ModuleType]:
    """The modules, and those of the user's that they import."""
    found = dict.fromkeys(modules)
    for module in modules:
        left = [module]
        while left and len(found) < _MOST_MODULES:
            for value in list(vars(left.pop()).values()):
                name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
                other = sys.modules.get(name) if isinstance(name, str) else None
                if other is not None and other not in found and other.__name__ != "__main__" and _is_own(other):
                    found[other] = None
                    left.append(other)
    return list(found)


def _changes_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    file = str(module.__file__)
    try:
        modified = os.stat(file).st_mtime_ns
        if preloader.current.modified.get(file, modified) != modified:
            return  # it has been edited since the import, and what differs may be that
        defined = _read(file, modified)
    except (OSError, SyntaxError, ValueError):
        return
    for name, value in list(vars(module).items()):
        if name in defined.constants:
            before = defined.constants[name]
            is_changed = type(value) is not type(before) or value != before
        elif name in defined.functions:
            is_changed = getattr(value, "__module__", module.__name__) != module.__name__
        else:
            is_known = defined.is_open or name in defined.names or name.startswith("_")
            is_changed = not is_known and not _is_part(module, value)
        if is_changed:
            yield f"{module.__name__}.{name}", value


def _is_part(module: ModuleType, value: Any) -> bool:
    """Whether it is a module of the package, which its import has set there."""
    return isinstance(value, ModuleType) and value.__name__.startswith(f"{module.__name__}.")


@functools.lru_cache(maxsize=4 * _MOST_MODULES)
def _read(file: str, modified: int) -> _Defined:
    """What a file assigns, as of a time of its last change."""
    with open(file, "rb") as source:
        tree = ast.parse(source.read())
    bound: list[str] = []
    inner: set[str] = set()
    is_open = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.append(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.append(node.name)
            is_open = is_open or node.name == "__getattr__"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound += [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
            is_open = is_open or any(alias.name == "*" for alias in node.names)
        elif isinstance(node, ast.Global):
            inner.update(node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("globals", "setattr"):
            is_open = True
    constants: dict[str, Any] = {}
    functions: set[str] = set()
    for statement in tree.body:
        for name, value in _assigned(statement):
            if name not in inner and bound.count(name) == 1:
                constants[name] = value
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) or statement.decorator_list:
            continue
        if statement.name not in inner and bound.count(statement.name) == 1:
            functions.add(statement.name)
    return _Defined(constants, frozenset(functions), frozenset({*bound, *inner}), is_open)


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, Any]]:
    """The name and the value of an assignment of a number or a text, which nothing changes but another assignment."""
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return
    try:
        value = ast.literal_eval(statement.value) if statement.value is not None else ...
    except (ValueError, TypeError):
        return
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None), tuple, frozenset)):
        yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
