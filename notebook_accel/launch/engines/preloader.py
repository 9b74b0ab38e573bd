"""Makes the fork server import the installed packages that this process has imported, so that ranks have them too."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Collection, Set
from types import ModuleType

from notebook_accel.launch import engines
from notebook_accel.launch.engines.base_server import TRAINING
from notebook_accel.launch.engines.contract import Engine
from notebook_accel.launch.system import installed

# These serve a kernel, or need one.
_KERNELS_OWN = frozenset(
    [
        "ipykernel",
        "zmq",
        "tornado",
        "debugpy",
        "jupyter_client",
        "jupyter_core",
        "ipywidgets",
        "anywidget",
        "psygnal",
        "widgetsnbextension",
        "comm",
        "pydevd",
        "prompt_toolkit",
        "nest_asyncio",
        "marimo",
        "notebook_accel",
    ]
)

_TRAINS = frozenset({"Accelerator", "Trainer", "backward", "optim"})
"""Names of which a function that trains uses one."""


def needed(used_names: Set[str]) -> Collection[str]:
    """The modules of `TRAINING` that a function needs, as far as the names that it uses tell: all, or none."""
    return () if _TRAINS.isdisjoint(used_names) else TRAINING


class Preloader:
    """Looks for new modules in this process: after each cell of a notebook, otherwise after launches."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._examined: set[str] = set()
        self.modified: dict[str, int] = {}
        """When each file of a module of the user's was last changed, as of the cell that has imported it."""
        self._launches = 0

    def after_launch(self, least: int | None) -> None:
        """Updates once this process has made `least` launches; never if it is `None`. Call it for each launch."""
        self._launches += 1
        if least is not None and self._launches >= least:
            self.update()

    def update(self) -> None:
        """Makes the fork server, and those of clusters, import new packages."""
        if self._engine is None:
            self._engine = engines.default()
        wanted = [] if self._examined else list(TRAINING)
        new = [name for name in list(sys.modules) if name not in self._examined]
        self._examined.update(new)
        for name in new:
            if self._is_installed(name, sys.modules.get(name)):
                wanted.append(name)
            else:
                self._note_modified(getattr(sys.modules.get(name), "__file__", None))
        self._engine.preload(wanted)
        engines.preload_on_clusters(wanted)

    def _note_modified(self, file: object) -> None:
        if isinstance(file, str) and not installed.is_installed(file):
            with contextlib.suppress(OSError):
                self.modified[file] = os.stat(file).st_mtime_ns

    def _is_installed(self, name: str, module: ModuleType | None) -> bool:
        """Whether a module is installed. The user's own files are not preloaded, since each launch reads them again."""
        spec = getattr(module, "__spec__", None)
        if spec is None or name.partition(".")[0] in _KERNELS_OWN or name != getattr(spec, "name", None):
            return False
        origin = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
        if not isinstance(origin, str) or not os.path.isabs(origin):
            return False  # such as "built-in"
        return installed.is_package(os.path.realpath(origin))


current = Preloader()
"""The one of this process."""
