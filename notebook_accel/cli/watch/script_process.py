"""Runs a script or module as `python SCRIPT` would, in a process that torch's launcher has started, and exits.

Python ends the process as usual, unless torch's process group is still open; see `launch/system/own_process.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from types import TracebackType
from typing import NoReturn

from notebook_accel.launch.rank import unsaved_training
from notebook_accel.launch.rank.patches import ddp_logger
from notebook_accel.launch.system import own_process


def program(words: Sequence[str]) -> Callable[[], object]:
    """A function that runs `SCRIPT [ARGUMENTS]` or `--module NAME [ARGUMENTS]`, in a fresh `__main__`."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if words[0] == "--module":
        sys.argv = list(words[1:])
        _prepend_to_path(os.getcwd())
        return lambda: runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # what `python -m` does
    sys.argv = list(words)
    script = os.path.abspath(words[0])
    if not os.path.isfile(script):  # a folder
        sys.path.insert(0, script)
        return lambda: runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
    _prepend_to_path(os.path.dirname(os.path.realpath(script)))
    loader = SourceFileLoader("__main__", script)
    main.__dict__.update(__builtins__=builtins, __file__=script, __cached__=None, __loader__=loader)

    def run() -> None:
        with io.open_code(script) as file:
            code = compile(file.read(), script, "exec", dont_inherit=True)
        exec(code, main.__dict__)

    return run


def _prepend_to_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def run_to_end(run: Callable[[], object]) -> None:
    """Runs the script, and ends the process itself if torch's process group is still open.

    Otherwise returns, or raises what the script raises, and the interpreter exits as usual.
    """
    failure: BaseException | None = None
    ddp_logger.install()
    unsaved_training.watch()
    try:
        run()
    except BaseException as error:
        _hide_launcher_frames()
        if not own_process.has_process_group():
            raise
        failure = error
    if own_process.has_process_group():
        _end(failure)


def _end(failure: BaseException | None) -> NoReturn:
    """Exits as the interpreter would, but without tearing down the interpreter, which torch's threads may still use."""
    code = _report(failure)
    own_process.finish(wait=True)
    own_process.clear_main()
    own_process.finish(wait=False)  # what that has registered or written
    if isinstance(failure, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _report(failure: BaseException | None) -> int:
    """Writes what the interpreter would write about an uncaught exception; returns the exit code."""
    if failure is None:
        return 0
    if not isinstance(failure, SystemExit):
        _show(failure)
        return 1
    if failure.code is None or isinstance(failure.code, int):
        return (failure.code or 0) & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{failure.code}\n")
    return 1


def _show(failure: BaseException) -> None:
    try:
        sys.excepthook(type(failure), failure, failure.__traceback__)
    except BaseException:  # the script has its own
        traceback.print_exception(failure)


def _hide_launcher_frames() -> None:
    """Removes this package's frames and those of runpy from the traceback of an uncaught exception."""
    show = sys.excepthook  # torch has its own, and the script may

    def without_ours(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and _is_launcher_file(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = without_ours


def _is_launcher_file(filename: str) -> bool:
    return os.path.dirname(filename) == os.path.dirname(__file__) or filename in ("<frozen runpy>", runpy.__file__)
