"""Waits for a line of input on a thread of its own, while the kernel's main thread runs the launch."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import threading
from collections.abc import Callable

_RETRY_SECONDS = 0.1


class PromptThread(threading.Thread):
    """Prompts the user, and passes on the answer.

    Args:
        read_line: The kernel's `raw_input` or `getpass`, which runs Python code at least every 10 ms.
        prompt: The prompt.
        on_answer: Called on this thread with the line; `None` if there is no input.
    """

    def __init__(self, read_line: Callable[[str], str], prompt: str, on_answer: Callable[[str | None], object]) -> None:
        super().__init__(name="notebook-accel prompt", daemon=True)
        self._read_line = read_line
        self._prompt = prompt
        self._on_answer = on_answer
        self._context = contextvars.copy_context()  # the prompt appears in the cell that runs now

    def run(self) -> None:
        answer = None
        try:
            with contextlib.suppress(EOFError):
                answer = self._context.run(self._read_line, self._prompt)
        finally:
            self._on_answer(answer)

    def withdraw(self) -> None:
        """Ends the wait, and returns once it has ended."""
        while self.is_alive():
            # SystemExit is the exception that a thread may end with silently.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(SystemExit))
            self.join(_RETRY_SECONDS)
