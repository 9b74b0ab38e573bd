"""The event loop that watches the ranks of a launch, to draw them in the terminal.

    ranks (watched_rank.py), torch's launcher (elastic.py) ─ output, events ─▶ Watcher ─▶ WatchedJob

It runs on the main thread of the command's process, which has nothing else to do. The ranks of this machine connect to
a Unix socket; the permissions of its folder keep other users out.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from notebook_accel.cli.watch.watched_launch import WatchedLaunch
from notebook_accel.errors import ConfigurationError, StreamError
from notebook_accel.events import Answer, Event, Exited, InputRequested, RankExited, Written
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.rank_streams import RankStreams
from notebook_accel.launch.wire.stream import Channel

if TYPE_CHECKING:
    from notebook_accel.cli.watch.watched_job import WatchedJob

_TICK = 0.1
"""Seconds between two drawings, and between two looks at whether a prompt is still of use."""
_LONGEST_PATH = 90
"""Characters of the path of the socket's folder: that of a socket may have about 100."""


class Watcher:
    """Reads the ranks' events and output until they end."""

    def __init__(self, subject: WatchedLaunch) -> None:
        self._subject = subject
        self._folder = _private_folder()
        self.address = f"{self._folder}/ranks"
        """The path of the socket that the ranks connect to."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen(subject.size + 1)
        self._loop = EventLoop()
        self._loop.register(self._listener, self._on_connection)
        self._streams: dict[int, RankStreams] = {}
        """By local rank."""
        self._watched: WatchedJob | None = None
        self._interrupts = 0
        self._notices: list[str] = []
        self._is_prompting = False
        self._is_over = False

    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event to ranks. One that has ended is left out."""
        for rank in ranks:
            with contextlib.suppress(OSError, KeyError):
                self._streams[rank].send(event)

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Does nothing: a script has its own signal handlers, which are not to be replaced."""

    def run(self, over: int) -> None:
        """Shows the ranks until the other end of the pipe `over` is closed."""
        self._over = over
        self._loop.register(over, self._on_end)
        from notebook_accel.cli.watch import watched_job  # noqa: F401  # while torch's launcher imports torch

        while not self._is_over:
            self._loop.run_once(_TICK)
            self._show_requests()
            if self._watched is not None:
                self._watched.refresh()
        self._accept_pending()
        for rank in [*self._streams]:
            self._disconnect(rank)

    def finish(self, code: int) -> None:
        """Leaves the last state of the ranks on the screen, with any notices.

        Args:
            code: The exit code.
        """
        if self._watched is not None:
            self._watched.finish(code, interrupted=self._interrupts > 0)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Called from a signal handler

    def interrupt(self) -> None:
        """Records that the ranks were interrupted or, the second time, killed."""
        self._interrupts += 1
        if self._is_prompting:
            raise KeyboardInterrupt  # nothing waits for the answer any longer

    def notice(self, text: str) -> None:
        """Shows a notice."""
        self._notices.append(text)

    # Sources of the event loop

    def _on_end(self) -> None:
        self._is_over = True

    def _accept_pending(self) -> None:
        """Accepts pending connections; the launcher also connects when it ends."""
        self._listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._on_connection()

    def _on_connection(self) -> None:
        connection, _ = self._listener.accept()
        connection.setblocking(True)
        channel = Channel(connection)
        try:
            messages = channel.receive(wait=True)
        except StreamError:
            messages = None
        if not messages:
            channel.close()
            return
        greeting, *rest = messages
        self._add_rank(channel, greeting.header, greeting.fds)
        with contextlib.suppress(StreamError):
            self._streams[greeting.header["local_rank"]].handle(rest)

    def _add_rank(self, channel: Channel, who: Mapping[str, Any], fds: list[int]) -> None:
        rank = who["local_rank"]
        if rank in self._streams:
            self._disconnect(rank)  # the process was this rank in an earlier attempt
        for fd in fds:
            os.set_blocking(fd, False)
        if self._watched is None:
            from notebook_accel.cli.watch.watched_job import WatchedJob

            self._watched = WatchedJob(self._subject, self)
        self._watched.add_rank(rank, who)
        pipes = dict(zip(fds, who["streams"], strict=True))
        # A rank whose messages can't be decoded runs on: its output can still be read.
        self._streams[rank] = RankStreams(self._loop, channel, pipes, partial(self._on_event, rank), lambda: None)

    def _on_event(self, rank: int, event: Event, fds: Sequence[int]) -> None:
        assert self._watched is not None
        if isinstance(event, Written):
            self._watched.write(rank, event.stream, b"".join(event.data))
        elif isinstance(event, InputRequested):
            self._prompt(rank, event)
        elif isinstance(event, RankExited):
            self._watched.apply(event.local_rank, Exited(event.code, event.signal))
        else:
            self._watched.apply(rank, event)

    def _prompt(self, rank: int, event: InputRequested) -> None:
        assert self._watched is not None
        answer = None
        self._is_prompting = True
        with contextlib.suppress(KeyboardInterrupt):
            if not self._interrupts:
                answer = self._watched.prompt(rank, event, self._until_gone(rank))
        self._is_prompting = False
        self.send([rank], Answer(answer))

    @contextlib.contextmanager
    def _until_gone(self, rank: int) -> Iterator[None]:
        """Interrupts the body once this rank or torch's launcher has ended, as when another rank fails.

        The body is a wait for the terminal, on the main thread. A timer ends it time and again, since readline
        overlooks a signal that arrives just before it waits for a key.

        Raises:
            KeyboardInterrupt: One of them has ended.
        """
        ends = select.poll()
        ends.register(self._over, select.POLLIN)
        ends.register(self._streams[rank].channel, 0)  # a closed connection is always reported

        def look(*_: object) -> None:
            if ends.poll(0):
                signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, _TICK, _TICK)
        try:
            yield
        finally:
            try:
                if not self._interrupts:  # an interrupt sets the timer for a notice
                    signal.setitimer(signal.ITIMER_REAL, 0)
            finally:
                signal.signal(signal.SIGALRM, before)

    def _disconnect(self, rank: int) -> None:
        """Reads the last messages and output of a rank that has ended."""
        self._streams[rank].read_rest()
        self._streams.pop(rank).close()

    def _show_requests(self) -> None:
        if self._watched is None:
            return
        self._watched.interrupted(self._interrupts)
        while self._notices:
            self._watched.notice(self._notices.pop(0))


def _private_folder() -> str:
    """Creates a folder for the socket, which only this user can enter.

    Raises:
        ConfigurationError: There is no place for it.
    """
    with contextlib.suppress(OSError):
        return tempfile.mkdtemp(prefix="notebook-accel-", dir="/tmp")
    try:
        found = tempfile.mkdtemp(prefix="notebook-accel-")
    except OSError as error:
        raise ConfigurationError(
            f"showing the ranks needs a temporary folder: {error}. Set TMPDIR to a writable folder, or add --quiet."
        ) from None
    if len(found) > _LONGEST_PATH:
        os.rmdir(found)
        raise ConfigurationError(
            f"{found} is too long for the path of a socket. Set TMPDIR to a folder with a shorter path."
        )
    return found
