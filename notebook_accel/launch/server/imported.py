"""What the base server has imported, and whether a new process would have imported the same."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import ItemsView, Iterator, Mapping, Sequence

from notebook_accel.launch.system import installed

_PACKAGE = __name__.partition(".")[0]


class Imported:
    """The variables that imports have read, and the files that they come from.

    What other code of libraries than Python's reads, such as `OMP_NUM_THREADS`, can't be observed: a driver that looks
    for the base server takes that into account (`load_time` in `engines/load_time.py`).

    Args:
        harmless: Variables that may differ, since ranks apply them themselves, or since their effect is none.
    """

    def __init__(self, harmless: Sequence[str]) -> None:
        self._harmless = tuple(harmless)
        self._began = time.time_ns()
        self._variables: dict[str, str | None] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self._path: Sequence[str] = ()
        self._names: frozenset[str] = frozenset()
        self._places: Mapping[str, str] = {}
        self.is_outdated = False
        """Whether a file has changed since then, so that no process is to share what has been imported."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Records the variables that the imports in this context read, and afterwards the files."""
        recorder = type("_Recorder", (_Recorder,), {"variables": self._variables})
        before = type(os.environ)
        os.environ.__class__ = recorder
        try:
            yield
        finally:
            os.environ.__class__ = before
        found = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        files = {file for file in found if isinstance(file, str) and os.path.isabs(file)}
        self._files = {file: _version(file) for file in (*files, *installed.package_folders())}
        self._path = list(sys.path)
        # This package comes from where its copy in the driver does, which is part of the address.
        self._names = frozenset(name for name in sys.modules if "." not in name) - {_PACKAGE}
        self._places = self._places_on(self._path)
        self.is_outdated = any(changed >= self._began for changed, _ in self._files.values())

    def conflict(self, environment: Mapping[str, str], path: Sequence[str]) -> str:
        """Why a process with this environment and `sys.path` would have imported something else; empty if it wouldn't.

        Sets `is_outdated`.
        """
        different = [
            name
            for name, value in self._variables.items()
            if environment.get(name) != value and not name.startswith(self._harmless)
        ]
        if different:
            return f"what it has imported has read other values of {', '.join(sorted(different))}"
        if not self.is_outdated:
            self.is_outdated = any(_version(file) != version for file, version in self._files.items())
        if self.is_outdated:
            return "files that it has imported have changed"
        if list(path) != self._path and self._places_on(path) != self._places:
            return "sys.path leads to other modules"
        return ""

    def _places_on(self, path: Sequence[str]) -> dict[str, str]:
        """The folder where each of the modules is found."""
        found: dict[str, str] = {}
        for folder in path:
            for name in _found(folder, self._names):
                found.setdefault(name, folder)
        return found


class _Recorder(type(os.environ)):  # type: ignore[misc]
    """The environment, which notes what is read of it. To list it all, as tqdm does for its own, reads nothing."""

    variables: dict[str, str | None]

    def __getitem__(self, name: str) -> str:
        try:
            value: str = super().__getitem__(name)
        except KeyError:
            self.variables.setdefault(name, None)
            raise
        self.variables.setdefault(name, value)
        return value

    def items(self) -> ItemsView[str, str]:
        return {self.decodekey(name): self.decodevalue(value) for name, value in self._data.items()}.items()


def _version(file: str) -> tuple[int, int]:
    """When a file was last changed, and its size."""
    try:
        found = os.stat(file)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _found(folder: str, names: frozenset[str]) -> Iterator[str]:
    """Those of the modules that are in a folder of `sys.path`. A folder without a package in it hides none."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name, _, ending = entry.name.partition(".")
            if name not in names:
                continue
            if ending.endswith(("py", "pyc", "so")) or os.path.exists(os.path.join(entry.path, "__init__.py")):
                yield name
