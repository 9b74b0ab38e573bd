"""Starts a fresh Python process of ours, without the shadows of the user's folder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

# The interpreter would put the working directory first: a user's `random.py` would then be imported by torch.
_BOOTSTRAP = """\
import importlib, json, sys
entry, path, arguments = json.loads(sys.argv[1])
sys.path[:] = path
module, _, name = entry.partition(":")
getattr(importlib.import_module(module), name)(*arguments)
"""


def command(entry: str, arguments: Sequence[Any]) -> list[str]:
    """The command line that calls `entry`, written `module:function`, with JSON arguments."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        here = ""
    path = [folder for folder in sys.path if folder not in ("", here)]
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if home not in path:
        path.append(home)
    return [sys.executable, "-c", _BOOTSTRAP, json.dumps([entry, path, list(arguments)])]


def spawn(entry: str, fds: Sequence[int], environment: Mapping[str, str], *arguments: Any) -> int:
    """Starts `entry(*fds, *arguments)` in a session of its own, which inherits `fds`. Returns its process id.

    For a process that reaps its children itself; others use `subprocess` with `command`.
    """
    for fd in fds:
        os.set_inheritable(fd, True)
    try:
        return os.posix_spawn(sys.executable, command(entry, [*fds, *arguments]), dict(environment), setsid=True)
    finally:
        for fd in fds:
            os.set_inheritable(fd, False)
