"""Modules with the names of Accelerate's, so that `from accelerate.state import …` is ported by changing one word.

They have no code: each imports a name when it is accessed, from the module that `exports.py` gives. Type checkers read
their `.pyi` files. A name that a module does not have is one of these (`other`):

- Accelerate's own, if Accelerate is installed (`exports.ACCELERATES`)
- refused when it is used (`advice.py`): it can be imported, and raises an error with advice when it is called
- refused (`advice.py`): an `ImportError` with advice when it is imported, and an `AttributeError` when it is accessed,
  so that `hasattr` returns `False`
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from notebook_accel import exports

_PACKAGE = __package__
WITHOUT_OWN_NAMES = [
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
"""Modules of Accelerate of which this package defines no name itself."""


class AccelerateModule(ModuleType):
    """A module that re-exports names of other modules, and imports each when it is accessed."""

    def __init__(self, name: str, modules: Mapping[str, str]) -> None:
        super().__init__(f"{_PACKAGE}.{name}", f"The names of `accelerate.{name}` that notebook_accel provides.")
        self.__all__ = sorted(modules)
        self.__spec__ = ModuleSpec(self.__name__, None, is_package=True)
        self.__path__: list[str] = []  # also where it has no submodules: only then does an import ask `RefusedNames`
        self._modules = modules
        """The module of each name."""

    def __getattr__(self, name: str) -> Any:
        # Not only imports come here: pickle searches all modules for the one that defines an object.
        return exports.load(name, self._modules[name]) if name in self._modules else other(self.__name__, name)

    def __dir__(self) -> list[str]:
        return self.__all__

    def __reduce__(self) -> tuple[Any, ...]:
        """Functions that use the module, such as `utils.set_seed(0)`, are sent to ranks with its name."""
        return importlib.import_module, (self.__name__,)


class RefusedNames:
    """A finder of `sys.meta_path` that refuses imports of refused names, and names those that were meant.

    `from package import name` looks for a submodule of this name if the package has no such attribute, and so comes
    here. An `ImportError` from here ends the import; from a module's `__getattr__` it would also end `hasattr`.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, name = fullname.rpartition(".")
        if package.partition(".")[0] == _PACKAGE and (text := _refusal(package, name) or _suggestion(package, name)):
            from notebook_accel.errors import UnsupportedNameError

            raise UnsupportedNameError(text, name=name)


def other(module: str, name: str) -> Any:
    """The value of a name that a module does not have itself.

    Raises:
        AttributeError: There is no such name, it is refused, or it is Accelerate's own and Accelerate is not installed.
    """
    if (origin := exports.of_accelerate().get(name)) is not None:
        try:
            return exports.load(name, origin)
        except ImportError as error:
            raise AttributeError(_not_loaded(name, error)) from error
    if found := None if name.startswith("_") else _advice().stand_in(name, module.partition(".")[2]):
        return found
    raise AttributeError(_refusal(module, name) or f"module {module!r} has no attribute {name!r}")


def _refusal(module: str, name: str) -> str:
    """The message about a name that a module does not have, although Accelerate has it."""
    if (origin := exports.of_accelerate().get(name)) is not None:
        try:
            exports.load(name, origin)
        except (ImportError, AttributeError) as error:
            return _not_loaded(name, error)
    return "" if name.startswith("_") else _advice().of_import(name, module.partition(".")[2])


def _suggestion(module: str, name: str) -> str:
    """The message about a name that no module has, but that is similar to one of the module's; otherwise empty."""
    from notebook_accel.errors import did_you_mean

    hint = "" if name.startswith("_") else did_you_mean(name, dir(sys.modules[module]))
    return f"cannot import {name!r} from {module}{hint}" if hint else ""


def _not_loaded(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "accelerate":
        return (
            f"{name} is Accelerate's own, because it has nothing to do with ranks, and Accelerate is not installed. "
            "Run: pip install accelerate"
        )
    return f"{name} is Accelerate's own, and the installed Accelerate does not have it: {error}"


def _advice() -> ModuleType:
    # Not `from notebook_accel import …`, which would ask the package for the name first, and so come here again.
    return importlib.import_module(f"{_PACKAGE}.advice")


def install() -> None:
    """Adds the modules to `sys.modules`, and makes each an attribute of its parent."""
    found = {**{name: {} for name in WITHOUT_OWN_NAMES}, **exports.accelerate_modules()}
    for name, modules in sorted(found.items()):
        module = AccelerateModule(name, modules)
        sys.modules[module.__name__] = module
        parent, _, last = module.__name__.rpartition(".")
        if last not in found.get(name.rpartition(".")[0], {}):  # `utils.tqdm` is the function, as in Accelerate
            setattr(sys.modules[parent], last, module)
    if not any(type(each).__qualname__ == RefusedNames.__qualname__ for each in sys.meta_path):  # imported again
        sys.meta_path.append(RefusedNames())
