"""Shortens the errors that a cell shows to the user's own frames and the message, without internal frames."""

from __future__ import annotations

import re
import traceback

from notebook_accel.errors import NotebookAccelError, RankError
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import stack_frames

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
_HOOK = "_render_traceback_"
"""IPython renders an exception by its method of this name, if it has one."""


def install() -> None:
    """Gives every error of this package a short traceback."""
    setattr(NotebookAccelError, _HOOK, _render)
    # The message contains the rank's frames, and the user can see where the launch was called.
    setattr(RankError, _HOOK, _last_line)


def shorten(error: BaseException) -> None:
    """Makes an exception from another package show only its message."""
    setattr(error, _HOOK, lambda: _last_line(error))


def _render(error: BaseException) -> list[str]:
    _end_at_user(error)
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(stack_frames.PACKAGE) and "/IPython/" not in frame.filename:
            place = console.current.display_name(frame.filename)
            lines.append(f"{place}, line {frame.lineno}, in {frame.name}\n    {frame.line}")
    return [*lines, *_last_line(error)]


def _last_line(error: BaseException) -> list[str]:
    _end_at_user(error)
    text = f"{_RED}{type(error).__name__}{_PLAIN}: {error}"
    return [re.sub("^--> .*", lambda line: f"{_GREEN}{line[0]}{_PLAIN}", text, flags=re.MULTILINE)]


def _end_at_user(error: BaseException) -> None:
    """Ends the traceback at the user's last frame, so that `%debug` begins there rather than in this package."""
    last, trace = None, error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not filename.startswith(stack_frames.PACKAGE) and "/IPython/" not in filename:
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
