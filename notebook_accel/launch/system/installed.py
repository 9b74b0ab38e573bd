"""What is Python's own or installed, by where it lies. Whatever else is on the search path is the user's own."""

from __future__ import annotations

import functools
import os
import site
import sysconfig

_MARKS = tuple(os.path.join(os.sep, name, "") for name in ("site-packages", "dist-packages"))
"""Also of an environment that this one borrows from: one made with `--system-site-packages` does, and one that
`uv run --with` lays over another."""


def is_package(path: str) -> bool:
    """Whether a file, or a folder whose path ends in a separator, lies where packages are installed."""
    return any(mark in path for mark in _MARKS) or path.startswith(package_folders())


def is_installed(path: str) -> bool:
    """The same, or whether it is Python's own."""
    return is_package(path) or path.startswith(_python())


def short(path: str) -> str:
    """The path of what is installed, from where that is."""
    for mark in _MARKS:
        path = path.rpartition(mark)[2]
    roots = [root for root in (*package_folders(), *_python()) if path.startswith(root)]
    return path.removeprefix(max(roots, key=len)) if roots else path


@functools.cache
def package_folders() -> tuple[str, ...]:
    """The folders that this Python's packages are installed in, by all names that links give them."""
    paths = sysconfig.get_paths()
    return _ended(paths["purelib"], paths["platlib"], site.getusersitepackages())


@functools.cache
def _python() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return _ended(paths["stdlib"], paths["platstdlib"])


def _ended(*folders: str) -> tuple[str, ...]:
    """With a separator at the end of each; also by the names that links lead to."""
    both = [name for folder in folders for name in (folder, os.path.realpath(folder))]
    return tuple(dict.fromkeys(os.path.join(name, "") for name in both))
