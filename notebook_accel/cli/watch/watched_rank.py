"""A rank that the command watches: `python …/wrapper.py SCRIPT|--module NAME [ARGUMENTS]`.

    command line ◀─ what it writes, and events ─ this ─▶ the script, as `python SCRIPT` would run it
      (watcher)     ─ the answer to input() ──▶

Without a watcher, the script runs just the same.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from notebook_accel import events
from notebook_accel.cli.watch import script_process
from notebook_accel.events import Event, Exited, Phase, PhaseChanged, Returned
from notebook_accel.launch.rank import stdin
from notebook_accel.launch.rank.channel_thread import ChannelThread
from notebook_accel.launch.rank.memory import Memory
from notebook_accel.launch.rank.patches import rich, tqdm, trainers
from notebook_accel.launch.system import own_process
from notebook_accel.launch.wire import constants
from notebook_accel.launch.wire.mirrored.on_import import when_imported
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
        own_process.line_buffer_c_stdout()  # as in a terminal
    return channel


def _report_progress(channel: Channel) -> ChannelThread:
    """Starts to send the script's progress, and lets the watcher, which has the terminal, answer `input`."""
    # A worker that the script forks must not send as the rank.
    os.register_at_fork(after_in_child=channel.close)
    os.register_at_fork(after_in_child=lambda: events.set_sink(None))
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    channel_thread = ChannelThread(channel, pace=constants.report_interval(ranks))
    channel_thread.is_running = True
    channel_thread.emit(PhaseChanged(Phase.RUNNING))
    channel_thread.start()
    when_imported({"tqdm.std": lambda _: tqdm.install()})
    rich.install()
    trainers.install()
    if os.isatty(0):
        stdin.install("end of input", labeled=False)
    return channel_thread


def main() -> None:
    """Runs the process."""
    channel = _redirect_output(os.environ.pop(VARIABLE, ""))
    run = script_process.program(sys.argv[1:])
    channel_thread = None if channel is None else _report_progress(channel)
    last: Event = Returned()
    try:
        run()
    except BaseException as error:
        last = _failure(error)
        raise
    finally:
        if channel_thread is not None:
            for event in (*Memory(0).sample(time.monotonic()), last):  # a short script's memory was never sampled
                channel_thread.emit(event)
            channel_thread.finish()


def _failure(error: BaseException) -> Event:
    """The last event of a script that ended in an exception."""
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        return Exited(code=code, at=time.time()) if code else Returned()
    from notebook_accel.launch.rank import exceptions

    return replace(exceptions.describe(error, "running"), exception=())
