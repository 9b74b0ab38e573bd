"""Changes a module of a library once it is imported, and never imports it for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]
"""Takes the module. It may be called for one that is changed already."""


def when_imported(patches: dict[str, Patch]) -> None:
    """Calls the change of each module that is imported already, by its name, and of the others when they are."""
    pending = {}
    for name, patch in patches.items():
        if name in sys.modules:
            patch(sys.modules[name])
        else:
            pending[name] = patch
    if pending:
        sys.meta_path.insert(0, _Finder(pending))


class _Finder:
    """Finds the modules where they are, and has them changed once they are loaded."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self._patches.get(fullname)
        spec = None if patch is None else PathFinder.find_spec(fullname, path, target)
        if patch is not None and spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _patch_after(loader.exec_module, patch)
        return spec


def _patch_after(load: Callable[[ModuleType], None], patch: Patch) -> Callable[[ModuleType], None]:
    def exec_module(module: ModuleType) -> None:
        load(module)
        patch(module)

    return exec_module
