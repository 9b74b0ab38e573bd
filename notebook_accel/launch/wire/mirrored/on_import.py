"""Patches modules of other libraries once they are imported, and never imports one for that."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]
"""Patches the module that it is given, which may be patched already."""


def when_imported(patches: dict[str, Patch]) -> None:
    """Patches each module, by its name, now if it is imported already, otherwise as soon as it is."""
    waiting = [item for finder in sys.meta_path if isinstance(finder, _Finder) for item in finder.patches.items()]
    pending = {}
    for name, patch in patches.items():
        if name in sys.modules:
            patch(sys.modules[name])
        elif (name, patch) not in waiting:
            pending[name] = patch
    if pending:
        sys.meta_path.insert(0, _Finder(pending))


def replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replaces a function of a module or a class by what `make` makes of it, unless that was done before."""
    original, mark = getattr(owner, name), f"_accel_{make.__module__}"
    if not hasattr(original, mark):
        made = functools.wraps(original)(make(original))
        setattr(made, mark, True)
        setattr(owner, name, made)


class _Finder:
    """An import hook that finds modules as usual, and patches them once they are loaded."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self.patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self.patches.get(fullname)
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
