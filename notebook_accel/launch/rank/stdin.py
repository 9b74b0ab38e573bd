"""`input()` in a rank: requests a line from the user, who sits at the notebook or at the watcher's terminal."""

from __future__ import annotations

import builtins
import os
import sys

from notebook_accel import events

NO_INPUT = (
    "there is nobody to ask: input() needs a front end that takes input, and a cell that waits for the ranks. "
    "Pass what you would type as an argument, or as a variable of the notebook"
)
_builtin_input = builtins.input


def install(no_answer: str = NO_INPUT, *, labeled: bool = True) -> None:
    """Replaces `input()`, also for pdb, by one that sends its prompt.

    Args:
        no_answer: The text of the `EOFError` where there is no answer.
        labeled: Whether the prompt says which rank asks, if there are several.
    """

    def _input(prompt: object = "", /) -> str:
        if not events.has_sink():  # in a worker that the rank has started
            return _builtin_input(prompt)
        sys.stdout.flush()
        sys.stderr.flush()
        label = f"[{os.environ['RANK']}] " if labeled and int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
        answer = events.request_input("", f"{label}{prompt}")
        if answer is None:
            raise EOFError(no_answer)
        return answer

    builtins.input = _input
