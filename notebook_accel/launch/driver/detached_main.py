"""The process that runs a detached job: what the notebook's kernel does for others, and nothing else."""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from notebook_accel.events import Notice
from notebook_accel.launch.driver.attempts import Launch
from notebook_accel.launch.driver.stopping import Reason
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.results import Results
from notebook_accel.launch.plan import plan
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.show import front_end as frontend
from notebook_accel.launch.show.front_end import NoView, Terminal, View
from notebook_accel.launch.wire import frames
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel


@dataclass(frozen=True)
class Order:
    """A job to run. The payload's parts travel beside it, or its descriptor."""

    plan: Plan
    environ: Mapping[str, str]
    layout: tuple[int, ...]
    """Of the payload."""
    name: str
    origin: str
    cells: Mapping[str, tuple[str, str]]
    """What the notebook calls the cells that the function comes from, and their text, by file name."""


class Unseen(Terminal):
    """Nobody looks on; what there is to tell goes into the journal."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self.job: Job | None = None

    def choose_view(self) -> Callable[[Job], View]:
        return NoView

    def write(self, stream: str, text: str) -> None:
        pass  # the journal has each line

    def notice(self, text: str) -> None:
        if self.job is not None:
            self.job.apply(None, Notice(text))

    def origin(self) -> str:
        return self._order.origin

    def place(self, filename: str) -> str:
        return self._order.cells.get(filename, (filename, ""))[0]


def main(fd: int) -> None:
    """The process begins here."""
    if os.fork():
        os._exit(0)  # a kernel that ends takes its children with it: this is not to be one
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    channel = Channel(socket.socket(fileno=fd))
    message = next(channel.messages())
    first, *parts = message.blobs
    order: Order = pickle.loads(first)
    front_end = Unseen(order)
    frontend.use(front_end)
    frames.cache_cell_sources({filename: text for filename, (_, text) in order.cells.items()})
    payload = Payload(next(iter(message.fds), None), order.layout, [bytes(expect_ends) for expect_ends in parts])
    engine = plan.engine_of(order.plan)
    launch = Launch(engine, order.plan, order.environ, payload, order.name, NoView, detached=True)
    front_end.job = launch.job
    try:
        record = launch.journal.open()
    except OSError as error:
        channel.send({"error": f"a detached job is followed by its journal, and that can't be written: {error}"})
        return
    launch.collect = Results(record.results, launch.job).collect
    channel.send({"folder": record.path.name, "pid": os.getpid()})
    go = next(channel.messages(), None)
    if go is None:
        record.remove()  # the launch was interrupted
        return
    for fd in go.fds:
        engine.take_over(Channel(socket.socket(fileno=fd)), order.environ)
    channel.close()
    _take_log(record)
    signal.signal(signal.SIGTERM, lambda *_: launch.requests.ask(Reason.CANCEL))
    launch.run()
    engine.close()


def _take_log(record: Record) -> None:
    """What this process itself has to say, which should be nothing, stays with the job."""
    fd = os.open(record.path / "driver.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for own in (1, 2):
        os.dup2(fd, own)
    os.close(fd)
