"""Modules with the names of Accelerate's, so that `from accelerate.state import …` is ported by changing one word.

They have no code: each imports a name when it is accessed, from the module that `exports.py` gives. Type checkers read
their `.pyi` files. A name that is refused (`refused_names.py`) raises an error with advice, on `import` and on access.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from notebook_accel import exports

_PACKAGE = __package__
ALL_REFUSED = [
    "commands",
    "commands.accelerate_cli",
    "commands.config",
    "commands.config.config_args",
    "commands.env",
    "commands.launch",
    "commands.merge",
    "hooks",
    "inference",
    "test_utils",
    "test_utils.training",
    "utils.ao",
    "utils.bnb",
    "utils.deepspeed",
    "utils.launch",
    "utils.megatron_lm",
    "utils.offload",
    "utils.rich",
    "utils.torch_xla",
    "utils.transformer_engine",
]
"""Modules of Accelerate that have only names that are refused."""


class AccelerateModule(ModuleType):
    """A module that re-exports names of other modules, and imports each when it is accessed."""

    def __init__(self, name: str, modules: Mapping[str, str], *, is_package: bool) -> None:
        super().__init__(f"{_PACKAGE}.{name}", f"The names of `accelerate.{name}` that notebook_accel provides.")
        self.__all__ = sorted(modules)
        self.__spec__ = ModuleSpec(self.__name__, None, is_package=is_package)
        if is_package:
            self.__path__: list[str] = []
        self._modules = modules
        """The module of each name."""

    def __getattr__(self, name: str) -> Any:
        # Not only imports come here: pickle searches all modules for the one that defines an object.
        if name not in self._modules:
            raise missing(self.__name__, name)
        return getattr(importlib.import_module(f"{_PACKAGE}.{self._modules[name]}"), name)

    def __dir__(self) -> list[str]:
        return self.__all__


def missing(module: str, name: str) -> Exception:
    """The error for a name that a module does not have."""
    if not name.startswith("_"):
        # Not `from notebook_accel import …`, which would ask the package for the name first, and so come here again.
        from notebook_accel.refused_names import error

        refused = error(name)
        if refused is not None:
            return refused
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def install() -> None:
    """Adds the modules to `sys.modules`, and makes each an attribute of its parent."""
    found = {**{name: {} for name in ALL_REFUSED}, **exports.accelerate_modules()}
    packages = {name.rpartition(".")[0] for name in found}
    for name, modules in sorted(found.items()):
        module = AccelerateModule(name, modules, is_package=name in packages)
        sys.modules[module.__name__] = module
        parent, _, last = module.__name__.rpartition(".")
        if last not in found.get(name.rpartition(".")[0], {}):  # `utils.tqdm` is the function, as in Accelerate
            setattr(sys.modules[parent], last, module)
