"""`input()` and `getpass()` in a rank: request a line from the user, at the notebook or at the terminal."""

from __future__ import annotations

import builtins
import getpass
import os
import sys

from notebook_accel import events

NO_INPUT = (
    "there is nobody to ask: input() and getpass() need a front end that takes input, and a cell that waits for the "
    "ranks. Pass what you would type as an argument, or as a variable of the notebook"
)
_builtin_input = builtins.input
_own_getpass = getpass.getpass


def install(no_answer: str = NO_INPUT) -> None:
    """Replaces `input()`, also for pdb, and `getpass.getpass()` by functions that send their prompts.

    If there are several ranks, the prompt says which one asks.

    Args:
        no_answer: The text of the `EOFError` where there is no answer.
    """

    def ask(prompt: object, *, hidden: bool) -> str:
        sys.stdout.flush()
        sys.stderr.flush()
        label = f"[{os.environ['RANK']}] " if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
        answer = events.request_input("", f"{label}{prompt}", hidden=hidden)
        if answer is None:
            raise EOFError(no_answer)
        return answer

    def _input(prompt: object = "", /) -> str:
        if not events.has_sink():  # in a worker that the rank has started
            return _builtin_input(prompt)
        return ask(prompt, hidden=False)

    def _getpass(prompt: str = "Password: ", stream: object = None, **options: object) -> str:
        if not events.has_sink():
            return _own_getpass(prompt, stream, **options)  # type: ignore[arg-type]
        return ask(prompt, hidden=True)

    builtins.input = _input
    getpass.getpass = _getpass


def uninstall() -> None:
    """Undoes `install`."""
    builtins.input = _builtin_input
    getpass.getpass = _own_getpass
