"""Ends a process that the user's code has forked from a rank, once it leaves the function of the call.

In a script, both processes would continue after the call. Here, only the rank does so: a fork can't report to the
driver, and ends as an interpreter would, but without exit handlers, which are the rank's.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import stack_frames


def call(function: Callable[[], Any]) -> Any:
    """Calls a function; returns only in the process that has called it."""
    caller = os.getpid()
    try:
        value = function()
    except BaseException as error:
        if os.getpid() != caller:
            _end(_report(error))
        raise
    if os.getpid() != caller:
        _end(0)
    return value


def _report(error: BaseException) -> int:
    """Prints an exception without the frames of the launcher, unless it is an exit; returns the exit status."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(stack_frames.PACKAGE):
        trace = trace.tb_next
    sys.stderr.write("A process that the code has forked ended with an exception:\n")
    traceback.print_exception(error.with_traceback(trace))
    return 1


def _end(code: int) -> NoReturn:
    own_process.flush()
    os._exit(code & 0xFF)
