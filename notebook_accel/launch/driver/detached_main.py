"""The process that runs a detached job. It is the job's driver, as the kernel is for other jobs."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from notebook_accel.errors import NotebookAccelError
from notebook_accel.launch.driver.launch import Launch
from notebook_accel.launch.driver.stop_policy import StopReason, catch_sigterm
from notebook_accel.launch.job import rules
from notebook_accel.launch.journal.records import VARIABLE, Record, folder
from notebook_accel.launch.journal.results import Results
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.show import console
from notebook_accel.launch.show.console import Terminal, Unseen
from notebook_accel.launch.wire import stack_frames
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel


@dataclass(frozen=True)
class JobOrder:
    """The job to run, as the kernel sends it. The same message carries the payload's parts or its descriptor."""

    plan: Plan
    environ: Mapping[str, str]
    layout: tuple[int, ...]
    """The payload's layout."""
    name: str
    origin: str
    cells: Mapping[str, tuple[str, str]]
    """By file name: the notebook's name of each cell that the function comes from, and the cell's source."""
    saved: SavedLaunch | None
    """What is needed to launch the job again."""
    rules: Sequence[bytes]
    """As `rules.pack` returns them."""
    make: Callable[..., Launch] = Launch
    """Makes the launch."""


class JournalConsole(Unseen):
    """Shows nothing; the journal has what there is to see, for processes that follow the job."""

    def __init__(self, order: JobOrder) -> None:
        super().__init__(Terminal())
        self._order = order

    def origin(self) -> str:
        return self._order.origin

    def display_name(self, filename: str) -> str:
        return self._order.cells.get(filename, (filename, ""))[0]


def main(fd: int) -> None:
    """The entry point of the process; `fd` is its socket to the kernel that launches the job."""
    # A kernel's children are killed with it. This fork makes the driver an orphan, which survives.
    if os.fork():
        os._exit(0)
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    channel = Channel(socket.socket(fileno=fd))
    message = next(channel.messages(), None)
    if message is None:
        return  # the kernel has ended
    first, *parts = message.blobs
    sys.path.append("")  # the modules of the user, which rules and items may need; last, so that they hide nothing
    order: JobOrder = pickle.loads(first)
    console.use(JournalConsole(order))
    stack_frames.cache_cell_sources({filename: text for filename, (_, text) in order.cells.items()})
    payload = Payload(message.fds, order.layout, [bytes(part) for part in parts])
    engine = plan.engine_of(order.plan)
    try:
        launch = order.make(
            engine,
            order.plan,
            order.environ,
            payload,
            order.name,
            console.current.choose_view(),
            detached=True,
            saved=order.saved,
            rules=rules.unpack(order.rules),
        )
        record = launch.journal.open()
    except NotebookAccelError as error:
        channel.send({"error": str(error), "type": type(error).__name__})
        return
    except OSError as error:
        text = (
            f"a detached job needs a journal, which can't be written: {error}. Make room in {folder()}, or make it "
            f"writable, or set {VARIABLE} to a folder on another disk"
        )
        channel.send({"error": text})
        return
    launch.results = Results(record.results, launch.job)
    go = None
    with contextlib.suppress(OSError):  # the kernel has ended
        channel.send({"folder": record.path.name, "pid": os.getpid()})
        go = next(channel.messages(), None)
    if go is None:
        record.remove()  # the launch was interrupted
        return
    for fd in go.fds:
        engine.take_over(Channel(socket.socket(fileno=fd)), order.environ)
    channel.close()
    _redirect_output(record)
    on_terminate = StopReason.PREEMPTION if order.plan.config.checkpoint_dir else StopReason.CANCEL
    with catch_sigterm(launch.requests, on_terminate):
        launch.announce()
        launch.run()
        engine.close()
        launch.notifications.wait()


def _redirect_output(record: Record) -> None:
    """Redirects this process's own output, which should be empty, to a log in the job's folder."""
    fd = os.open(record.path / "driver.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for own in (1, 2):
        os.dup2(fd, own)
    os.close(fd)
