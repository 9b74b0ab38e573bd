"""The user's name for a file in a stack: `In[3]` for a cell, otherwise its path.

Only the driver's front end knows which cell a file name stands for, and ranks have none: they send names as Python has
them. So that stacks can be formatted without the screen, the front end registers itself here, once a process.
"""

from __future__ import annotations

from collections.abc import Callable

_name_of: Callable[[str], str] = str


def register(name_of: Callable[[str], str]) -> None:
    """Sets the function that looks up users' names for files."""
    global _name_of  # one process has one front end
    _name_of = name_of


def name_of(filename: str) -> str:
    """What the user calls this file."""
    return _name_of(filename)
