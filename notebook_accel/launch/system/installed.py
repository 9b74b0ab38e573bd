"""Tells installed code and Python's own code, by location, from the user's code on the search path."""

from __future__ import annotations

import functools
import os
import site
import sysconfig

_MARKS = tuple(os.path.join(os.sep, name, "") for name in ("site-packages", "dist-packages"))
"""Includes the environment that this one borrows packages from, if it was made with `--system-site-packages` or by
`uv run --with`."""


def is_package(path: str) -> bool:
    """Whether a file, or a folder whose path ends in a separator, is in a folder of installed packages."""
    return any(mark in path for mark in _MARKS) or path.startswith(package_folders())


def is_installed(path: str) -> bool:
    """Whether it is installed, or Python's own."""
    return is_package(path) or path.startswith(_python())


def short(path: str) -> str:
    """The path of an installed file, relative to the folder of packages."""
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
