"""Marks the threads that a rank starts itself, so that they can be told from the user's in a dump of all stacks.

For each frame, faulthandler writes only the file, line and function name, so the dump of a stuck or crashed process
contains nothing else. The name is therefore set on the code object, independent of the function's name in the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

MAIN_LOOP = "serve"
"""The function at the bottom of a rank's main thread, which runs the user's calls."""
CHANNEL_THREAD = "_attend"
"""The function at the bottom of the thread that owns a rank's channel, which users never want to see."""
CHANNEL_THREAD_NAME = "notebook-accel"
"""The name of that thread itself."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def named_in_dumps(name: str) -> Callable[[_Function], _Function]:
    """Gives a function this name in all stacks, those that faulthandler dumps included."""

    def mark(function: _Function) -> _Function:
        code = function.__code__
        function.__code__ = code.replace(co_name=name)
        return function

    return mark
