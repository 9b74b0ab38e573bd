"""`input()` in a rank: the user of the notebook is asked. Runs in the rank."""

from __future__ import annotations

import builtins
import os
import sys

from notebook_accel import events

_builtin_input = builtins.input


def install() -> None:
    """Has `input()` ask whoever has launched this rank."""
    builtins.input = _input


def _input(prompt: object = "", /) -> str:
    if not events.has_sink():  # a worker of the rank's
        return _builtin_input(prompt)
    sys.stdout.flush()
    sys.stderr.flush()
    label = f"[{os.environ['RANK']}] " if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
    answer = events.request_input("", f"{label}{prompt}")
    if answer is None:
        raise EOFError(
            "there is nobody to ask: input() needs a front end that takes input, and a cell that waits for the ranks. "
            "Pass what you would type as an argument, or as a variable of the notebook"
        )
    return answer
