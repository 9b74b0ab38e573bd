"""Modules with the names of Accelerate's, so that `from accelerate.state import …` is ported by changing one word.

They have no code: each imports a name when it is accessed, from the module that `exports.py` gives. Type checkers read
their `.pyi` files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from notebook_accel import exports

_PACKAGE = __package__


class AccelerateModule(ModuleType):
    """A module that re-exports names of other modules, and imports each when it is accessed."""

    def __init__(self, name: str, modules: Mapping[str, str]) -> None:
        super().__init__(f"{_PACKAGE}.{name}", f"The names of `accelerate.{name}` that notebook_accel provides.")
        self.__all__ = sorted(modules)
        self._modules = modules
        """The module of each name."""

    def __getattr__(self, name: str) -> Any:
        # Not only imports come here: pickle searches all modules for the one that defines an object.
        if name not in self._modules:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{_PACKAGE}.{self._modules[name]}"), name)

    def __dir__(self) -> list[str]:
        return self.__all__


def install() -> None:
    """Adds the modules to `sys.modules`, and makes each an attribute of its parent."""
    for name, modules in sorted(exports.accelerate_modules().items()):
        module = sys.modules[f"{_PACKAGE}.{name}"] = AccelerateModule(name, modules)
        parent, _, last = f"{_PACKAGE}.{name}".rpartition(".")
        setattr(sys.modules[parent], last, module)
