"""Runs a script or module as `python SCRIPT` would: in a rank, or in a process that torch's launcher has started.

Python ends a process of torch's launcher as usual, unless torch's process group is still open. A rank is ended here in
any case, since it may be a fork; see `launch/system/own_process.py`.
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
from typing import Any, NoReturn

from notebook_accel import events
from notebook_accel.launch.rank import first_step, stdin
from notebook_accel.launch.rank.patches import ddp_logger
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import stack_frames

_code = 1
"""The exit code of the script that has run here; that of a shell for one that a signal ends."""


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


# In a rank


def take_streams(fds: Sequence[int], *, shared: bool) -> None:
    """Makes descriptors this rank's standard streams, as `python -u` does at its start, which torch's launcher runs.

    Args:
        fds: Standard input, output and error.
        shared: Whether the last two are those of the driver, rather than pipes in place of its terminal.
    """
    for target, source in enumerate(fds):
        os.dup2(source, target)
        os.close(source)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, name)
        binary: Any = open(fd, "rb" if fd == 0 else "wb", -1 if fd == 0 else 0, closefd=False)  # noqa: SIM115
        getattr(binary, "raw", binary).name = f"<{name}>"
        stream: Any = io.TextIOWrapper(
            binary,
            encoding=before.encoding,
            errors="backslashreplace" if fd == 2 else before.errors,
            newline=None if fd == 0 else "\n",
            write_through=True,
        )
        stream.mode = "r" if fd == 0 else "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if shared:
        events.draw_here()
    if shared or not os.isatty(0):
        stdin.uninstall()
    else:
        stdin.install("end of input")


def run(words: Sequence[str], path: Sequence[str]) -> None:
    """Runs the script in this rank, and does what the interpreter does as it exits; `exit` then ends the process.

    Args:
        words: See `program`.
        path: The `sys.path` of an interpreter that has no script yet.
    """
    global _code  # a rank runs one script
    process, failure = os.getpid(), None
    sys.path[:] = path
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # torch has imported it before the fork
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    vars(builtins).pop("display", None)
    try:
        program(words)()
    except BaseException as error:
        failure = error
        _hide_launcher_frames()
    _code = _finish(failure)
    if os.getpid() != process:
        os._exit(_code)  # the script has forked this process
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_IGN)  # one for the other ranks must not replace the exit code
    if failure is not None:
        raise failure


def exit() -> NoReturn:
    """Ends the process with the exit code of the script that has run."""
    _leave(_code)


# In a process of torch's launcher


def run_to_end(run: Callable[[], object]) -> None:
    """Runs the script, and ends the process itself if torch's process group is still open.

    Otherwise returns, or raises what the script raises, and the interpreter exits as usual.
    """
    failure: BaseException | None = None
    ddp_logger.install()
    first_step.watch()
    try:
        run()
    except BaseException as error:
        _hide_launcher_frames()
        if not own_process.has_process_group():
            raise
        failure = error
    if own_process.has_process_group():
        _leave(_finish(failure))


def _leave(code: int) -> NoReturn:
    if code == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


_INTERRUPTED = 256 + signal.SIGINT
"""In place of an exit code, for a script that ends by `KeyboardInterrupt`."""


def _finish(failure: BaseException | None) -> int:
    """Does what the interpreter does as it exits, except its teardown, which torch's threads may not survive.

    Returns:
        The exit code.
    """
    code = _report(failure)
    own_process.finish(wait=True)
    own_process.clear_main()
    own_process.finish(wait=False)  # what that has registered or written
    return _INTERRUPTED if isinstance(failure, KeyboardInterrupt) else code


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
    return filename.startswith(stack_frames.PACKAGE) or filename in ("<frozen runpy>", runpy.__file__)
