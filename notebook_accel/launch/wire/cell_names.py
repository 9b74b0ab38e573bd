"""The user's name for a file in a stack: `In[3]` for a cell, otherwise its path.

Only the driver's console knows which cell a file name stands for, and it registers itself here, once a process. With
a call, ranks get the names of the cells that it comes from. They use them only in what they write themselves: in their
events they send names as Python has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_name_of: Callable[[str], str] = str
_names: dict[str, str] = {}
"""On a rank: the names that came with its calls."""


def register(name_of: Callable[[str], str]) -> None:
    """Sets the function that looks up users' names for files."""
    global _name_of  # one process has one console
    _name_of = name_of


def add(names: Mapping[str, str]) -> None:
    """Adds users' names for files, by file name."""
    _names.update(names)


def name_of(filename: str) -> str:
    """What the user calls this file."""
    return _names.get(filename) or _name_of(filename)


def filename_of(name: str) -> str:
    """On a rank, the file that the user calls by this name; the name itself if there is none."""
    return next((filename for filename, known in _names.items() if known == name), name)
