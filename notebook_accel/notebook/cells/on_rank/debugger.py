"""Pdb in a rank, whose commands the notebook's user types: after a cell has failed, and at a `breakpoint()`.

What pdb writes is kept until it asks for its next command, and goes to the notebook with the question. The other ranks
wait, if in a collective for as long as it takes.
"""

from __future__ import annotations

import io
import os
import pdb
import re
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from notebook_accel import events
from notebook_accel.notebook.cells.on_rank import shell

_OURS = re.compile(rf"^{re.escape(str(Path(__file__).parents[3]))}|/IPython/core/")
_NOBODY = "Nobody answers: this was interrupted, or the front end, or a cell in the background, takes no input.\n"


class Relay(pdb.Pdb):
    """Reads from, and writes to, the notebook."""

    def __init__(self) -> None:
        self._said = io.StringIO()
        super().__init__(stdin=io.StringIO(), stdout=self._said, nosigint=True, readrc=False)
        self.use_rawinput = False
        self.prompt = f"rank {os.environ.get('RANK', '?')} (Pdb) "

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], lprefix: str = ": ") -> str:
        """A frame, with the user's own name for its cell."""
        told = super().format_stack_entry(frame_lineno, lprefix)
        filename = frame_lineno[0].f_code.co_filename
        return told.replace(filename, shell.places.get(filename, filename), 1)

    def cmdloop(self, intro: Any = None) -> None:
        """Pdb's loop, with the notebook for a terminal."""
        self.preloop()
        stop: Any = None
        while not stop:
            line = self.cmdqueue.pop(0) if self.cmdqueue else self._ask()
            stop = self.postcmd(self.onecmd(self.precmd(line)), line)
        self.postloop()
        self._tell()

    def _ask(self) -> str:
        said = self._said.getvalue()
        self._said.seek(0)
        self._said.truncate()
        answer = events.request_input(said, self.prompt)
        if answer is None:
            self._said.write(_NOBODY)
        return "quit" if answer is None else answer

    def _tell(self) -> None:
        """Passes on what was written after the last question."""
        if rest := self._said.getvalue():
            sys.stdout.write(rest)
            sys.stdout.flush()
        self._said.seek(0)
        self._said.truncate()


def install() -> None:
    """Has `breakpoint()` open the debugger."""
    sys.breakpointhook = _stop_here


def look_back(commands: str) -> None:
    """Opens the debugger at the frame in which the last cell has failed; given commands, it obeys these and closes."""
    trace = _users(getattr(sys, "last_traceback", None))
    if trace is None:
        sys.stdout.write("no cell has failed here\n")
        return
    relay = Relay()
    # Pdb itself puts what follows a ;; at the end of its queue, behind the last command.
    relay.cmdqueue = [*(each.strip() for each in commands.split(";;")), "quit"] if commands else []
    relay.reset()
    relay.interaction(None, trace)


def _stop_here(*_: object, **__: object) -> None:
    frame: FrameType | None = sys._getframe(1)
    Relay().set_trace(frame)


def _users(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins with the user's own code."""
    while trace is not None and _OURS.search(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace
