"""Modules with the names of Accelerate's: an import from `accelerate.state` is ported by changing its first word.

They have no code: each is empty, and imports a name from where `exports.py` says when it is accessed. Type checkers
read the `.pyi` file of each.
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
    """A module that has names of other modules, which it imports at their first use."""

    def __init__(self, name: str, homes: Mapping[str, str]) -> None:
        super().__init__(f"{_PACKAGE}.{name}", f"What `accelerate.{name}` has and is here too.")
        self.__all__ = sorted(homes)
        self._homes = homes

    def __getattr__(self, name: str) -> Any:
        # Not only imports come here: pickle searches all modules for the one that defines an object.
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{_PACKAGE}.{self._homes[name]}"), name)

    def __dir__(self) -> list[str]:
        return self.__all__


def install() -> None:
    """Adds the modules to `sys.modules`, and each to the one that holds it."""
    for name, homes in sorted(exports.of_accelerate().items()):
        module = sys.modules[f"{_PACKAGE}.{name}"] = AccelerateModule(name, homes)
        folder, _, last = f"{_PACKAGE}.{name}".rpartition(".")
        setattr(sys.modules[folder], last, module)
