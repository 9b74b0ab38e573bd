"""A rank that the command line watches: `python …/wrapper.py SCRIPT|--module NAME [ARGUMENTS]`.

    command line ◀─ what it writes, and events ─ this ─▶ the script, as `python SCRIPT` would run it
      (watcher)     ─ the answer to input() ──▶

Without a watcher the script runs all the same.
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
"""Where the watcher's socket is, in the environment of ranks and of torch's launcher."""
STREAMS = {1: "stdout", 2: "stderr"}


def call(address: str, streams: Sequence[str], pipes: Sequence[int], **who: int) -> Channel:
    """Connects to the watcher, and says who it is.

    Args:
        address: The path of its socket.
        streams: The names of the streams that it is to read.
        pipes: Where it reads them; they are given away.
        who: What else it is to know.

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


def _connect(address: str) -> Channel | None:
    """Has the watcher read what this process would write to the terminal, files aside."""
    taken = [fd for fd in STREAMS if os.isatty(fd)]
    pipes = [os.pipe() for _ in taken]
    environ = os.environ
    try:
        channel = call(
            address,
            [STREAMS[fd] for fd in taken],
            [reading for reading, _ in pipes],
            rank=int(environ["RANK"]),
            local_rank=int(environ["LOCAL_RANK"]),
            attempt=int(environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )
    except (OSError, KeyError):
        for _, writing in pipes:
            os.close(writing)
        return None
    for fd, (_, writing) in zip(taken, pipes, strict=True):
        os.dup2(writing, fd)
        os.close(writing)
    if 1 in taken:
        libc.line_buffer_c_stdout()  # as in a terminal
    return channel


def _listen(teller: Emitter) -> None:
    """Has what the script does become events, whatever it imports for that."""
    when_imported({"tqdm.std": lambda _: tqdm.install()})
    rich.install()
    trainers.install()
    if os.isatty(0):
        builtins.input = _input
    os.register_at_fork(after_in_child=teller.forget)  # a worker must not speak for the rank


_builtin_input = builtins.input


def _input(prompt: object = "", /) -> str:
    """`input`, for the debugger too: the watcher has the terminal."""
    if not events.has_sink():
        return _builtin_input(prompt)
    sys.stdout.flush()
    sys.stderr.flush()
    answer = events.request_input("", str(prompt))
    if answer is None:
        raise EOFError("there is nothing more to read")
    return answer


def main() -> None:
    """The life of the rank."""
    channel = _connect(os.environ.pop(VARIABLE, ""))
    run = script_process.program(sys.argv[1:])
    teller = None if channel is None else Emitter(channel)
    if teller is not None:
        _listen(teller)
    last: Event = Returned()
    try:
        run()
    except BaseException as error:
        last = _failure(error)
        raise
    finally:
        if teller is not None:
            teller.end(last)


def _failure(error: BaseException) -> Event:
    """How the script has ended, in an exception."""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return Exited(code=code, at=time.time()) if code else Returned()
    from notebook_accel.launch.rank import exceptions

    return replace(exceptions.describe(error, "running"), exception=())
