"""A rank that the command watches: `python …/wrapper.py SCRIPT|--module NAME [ARGUMENTS]`.

    command line ◀─ what it writes, and events ─ this ─▶ the script, as `python SCRIPT` would run it
      (watcher)     ─ the answer to input() ──▶

Without a watcher, the script runs just the same.
"""

from __future__ import annotations

import builtins
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from notebook_accel import events
from notebook_accel.cli.watch import script_process
from notebook_accel.cli.watch.emitter import Emitter
from notebook_accel.events import Event, Exited, Returned
from notebook_accel.launch.rank.patches import rich, tqdm, trainers
from notebook_accel.launch.rank.patches.on_import import when_imported
from notebook_accel.launch.system import libc
from notebook_accel.launch.wire.stream import Channel

VARIABLE = "NOTEBOOK_ACCEL_WATCHER"
"""The environment variable with the watcher's address, for ranks and torch's launcher; unset before the script runs."""
STREAMS = {1: "stdout", 2: "stderr"}


def connect(address: str, streams: Sequence[str], pipes: Sequence[int], **who: int) -> Channel:
    """Connects to the watcher, and introduces this process.

    Args:
        address: The path of its socket.
        streams: The names of the streams that the watcher should read.
        pipes: Their reading ends, which are sent to the watcher and closed here.
        who: Further fields of the greeting.

    Raises:
        OSError: There is no watcher.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        channel = Channel(connection)
        channel.send({"pid": os.getpid(), "streams": list(streams), **who}, fds=pipes)
    except OSError:
        connection.close()
        raise
    finally:
        for fd in pipes:
            os.close(fd)
    return channel


def _redirect_output(address: str) -> Channel | None:
    """Connects, and redirects output from the terminal to the watcher; output to files is not changed."""
    redirected = [fd for fd in STREAMS if os.isatty(fd)]
    pipes = [os.pipe() for _ in redirected]
    environ = os.environ
    try:
        channel = connect(
            address,
            [STREAMS[fd] for fd in redirected],
            [reading for reading, _ in pipes],
            rank=int(environ["RANK"]),
            local_rank=int(environ["LOCAL_RANK"]),
            attempt=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except (OSError, KeyError):
        for _, writing in pipes:
            os.close(writing)
        return None
    for fd, (_, writing) in zip(redirected, pipes, strict=True):
        os.dup2(writing, fd)
        os.close(writing)
    if 1 in redirected:
        libc.line_buffer_c_stdout()  # as in a terminal
    return channel


def _install_patches(emitter: Emitter) -> None:
    """Patches progress libraries and `input`, so that the script's progress becomes events."""
    when_imported({"tqdm.std": lambda _: tqdm.install()})
    rich.install()
    trainers.install()
    if os.isatty(0):
        builtins.input = _input
    os.register_at_fork(after_in_child=emitter.forget)  # a worker process must not send events as if it were the rank


_builtin_input = builtins.input


def _input(prompt: object = "", /) -> str:
    """Replaces `input`, also under pdb. The watcher reads the line because it has the terminal."""
    if not events.has_sink():
        return _builtin_input(prompt)
    sys.stdout.flush()
    sys.stderr.flush()
    answer = events.request_input("", str(prompt))
    if answer is None:
        raise EOFError("end of input")
    return answer


def main() -> None:
    """Runs the process."""
    channel = _redirect_output(os.environ.pop(VARIABLE, ""))
    run = script_process.program(sys.argv[1:])
    emitter = None if channel is None else Emitter(channel)
    if emitter is not None:
        _install_patches(emitter)
    last: Event = Returned()
    try:
        run()
    except BaseException as error:
        last = _failure(error)
        raise
    finally:
        if emitter is not None:
            emitter.end(last)


def _failure(error: BaseException) -> Event:
    """The last event of a script that ended in an exception."""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return Exited(code=code, at=time.time()) if code else Returned()
    from notebook_accel.launch.rank import exception_events

    return replace(exception_events.describe(error, "running"), exception=())
