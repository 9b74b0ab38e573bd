"""Runs pdb in a rank after a cell has failed or at a `breakpoint()`; the user types the commands in the notebook.

Pdb's output is buffered until it prompts for the next command, and sent to the notebook with the prompt. The other
ranks wait; in a collective they wait as long as necessary.
"""

from __future__ import annotations

import io
import os
import pdb
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from notebook_accel import events

_INTERNAL = re.compile(rf"^{re.escape(str(Path(__file__).parents[3]))}|/IPython/core/")
_NOBODY = "No input: it was interrupted, or this front end, or a cell in the background, cannot read input.\n"


class Relay(pdb.Pdb):
    """A debugger whose terminal is the notebook."""

    def __init__(self, commands: Iterable[str] = ()) -> None:
        """Makes a debugger that runs these commands first."""
        self._commands = list(commands)
        self._output = io.StringIO()
        super().__init__(stdin=io.StringIO(), stdout=self._output, nosigint=True, readrc=False)
        self.use_rawinput = False
        self.prompt = f"rank {os.environ.get('RANK', '?')} (Pdb) "

    def cmdloop(self, intro: Any = None) -> None:
        """Runs pdb's command loop with the notebook as its terminal."""
        self.preloop()
        # Only now: Python 3.13 has queued a command that shows the frame, which comes first.
        self.cmdqueue += self._commands
        self._commands.clear()
        stop: Any = None
        while not stop:
            line = self.cmdqueue.pop(0) if self.cmdqueue else self._read_command()
            stop = self.postcmd(self.onecmd(self.precmd(line)), line)
        self.postloop()
        self._flush_output()

    def _read_command(self) -> str:
        output = self._output.getvalue()
        self._output.seek(0)
        self._output.truncate()
        answer = events.request_input(output, self.prompt)
        if answer is None:
            self._output.write(_NOBODY)
        return "quit" if answer is None else answer

    def _flush_output(self) -> None:
        """Writes the output that follows pdb's last prompt."""
        if rest := self._output.getvalue():
            sys.stdout.write(rest)
            sys.stdout.flush()
        self._output.seek(0)
        self._output.truncate()


def install() -> None:
    """Makes `breakpoint()` open the debugger."""
    sys.breakpointhook = _on_breakpoint


def post_mortem(commands: str) -> None:
    """Opens the debugger at the frame where the last cell failed; if commands are given, runs them and closes it."""
    trace = _user_part(getattr(sys, "last_traceback", None))
    if trace is None:
        sys.stdout.write("no cell has failed on this rank\n")
        return
    # Pdb itself would put the commands after a ;; at the end of its queue, behind the last command.
    relay = Relay([*(each.strip() for each in commands.split(";;")), "quit"] if commands else [])
    relay.reset()
    relay.interaction(None, trace)


def _on_breakpoint(*_: object, **__: object) -> None:
    frame: FrameType | None = sys._getframe(1)
    Relay().set_trace(frame)


def _user_part(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that starts in the user's code."""
    while trace is not None and _INTERNAL.search(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace
