"""Changes a module of a library once it is imported, and never imports it for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]
"""Takes the module. It may be called for one that is changed already."""


def when_imported(changes: dict[str, Change]) -> None:
    """Calls the change of each module that is imported already, by its name, and of the others when they are."""
    later = {}
    for name, change in changes.items():
        if name in sys.modules:
            change(sys.modules[name])
        else:
            later[name] = change
    if later:
        sys.meta_path.insert(0, _Finder(later))


class _Finder:
    """Finds the modules where they are, and has them changed once they are loaded."""

    def __init__(self, changes: dict[str, Change]) -> None:
        self._changes = changes

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        change = self._changes.get(fullname)
        spec = None if change is None else PathFinder.find_spec(fullname, path, target)
        if change is not None and spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _then(loader.exec_module, change)
        return spec


def _then(load: Callable[[ModuleType], None], change: Change) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        load(module)
        change(module)

    return exec_module
