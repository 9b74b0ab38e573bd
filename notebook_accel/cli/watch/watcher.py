"""The event loop that watches the ranks of a launch, to draw them in the terminal.

    ranks (watched_rank.py), torch's launcher (elastic.py) ─ output, events ─▶ Watcher ─▶ Screen

It runs on the main thread of the command's process, which has nothing else to do. The ranks of this machine connect to
a Unix socket; the permissions of its folder keep other users out.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import tempfile
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from notebook_accel.cli.watch.watched_launch import LAUNCHER, WatchedLaunch
from notebook_accel.errors import StreamError
from notebook_accel.events import Answer, Event, InputRequested, from_wire, to_wire
from notebook_accel.launch.wire.stream import Channel

if TYPE_CHECKING:
    from notebook_accel.cli.watch.screen import Screen

_TICK = 0.1
"""Seconds between two drawings."""
_READ = 65536


class Watcher:
    """Reads the ranks' events and output until they end."""

    def __init__(self, subject: WatchedLaunch) -> None:
        self._subject = subject
        self._folder = tempfile.mkdtemp(prefix="notebook-accel-", dir="/tmp")  # a socket's path must be short
        self.address = f"{self._folder}/ranks"
        """The path of the socket that the ranks connect to."""
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen(subject.size + 1)
        self._selector = selectors.DefaultSelector()
        self._register(self._listener, self._on_connection)
        self._channels: dict[int, Channel] = {}
        """By local rank."""
        self._pids: dict[int, int] = {}
        self._pipes: dict[int, dict[int, str]] = {}
        """By local rank, the descriptors of its output, each with the name of its stream."""
        self._screen: Screen | None = None
        self._interrupts = 0
        self._notices: list[str] = []
        self._is_prompting = False
        self._is_over = False

    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event to ranks. One that has ended is left out."""
        header, _ = to_wire(event)
        for rank in ranks:
            with contextlib.suppress(OSError, KeyError):
                self._channels[rank].send(header)

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Does nothing: a script has its own signal handlers, which are not to be replaced."""

    def run(self, over: int) -> None:
        """Shows the ranks until the other end of the pipe `over` is closed."""
        self._register(over, self._on_end)
        from notebook_accel.cli.watch import screen  # noqa: F401  # while torch's launcher imports torch

        while not self._is_over:
            for key, _ in self._selector.select(_TICK):
                key.data()
            self._show_requests()
            if self._screen is not None:
                self._screen.refresh()
        self._accept_pending()
        for rank in [*self._pipes]:
            self._disconnect(rank)

    def finish(self, code: int) -> None:
        """Leaves the last state of the ranks on the screen, with any notices.

        Args:
            code: The exit code.
        """
        if self._screen is not None:
            self._screen.finish(code, interrupted=self._interrupts > 0)
        self._listener.close()
        self._selector.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Called from a signal handler

    def interrupt(self) -> None:
        """Records that the ranks were interrupted or, the second time, killed."""
        self._interrupts += 1
        if self._is_prompting:
            raise KeyboardInterrupt  # nothing waits for the answer any more

    def notice(self, text: str) -> None:
        """Shows a notice."""
        self._notices.append(text)

    # Sources of the event loop

    def _register(self, source: Any, callback: Callable[[], object]) -> None:
        self._selector.register(source, selectors.EVENT_READ, callback)

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
        for message in rest:
            self._on_message(greeting.header["local_rank"], message.header)

    def _add_rank(self, channel: Channel, who: Mapping[str, Any], fds: list[int]) -> None:
        rank = who["local_rank"]
        if rank in self._channels:
            self._disconnect(rank)  # the process was this rank in an earlier attempt
        self._channels[rank], self._pids[rank] = channel, who["pid"]
        self._pipes[rank] = dict(zip(fds, who["streams"], strict=True))
        self._register(channel, partial(self._on_channel, rank))
        for fd, stream in self._pipes[rank].items():
            os.set_blocking(fd, False)
            self._register(fd, partial(self._on_output, rank, fd, stream))
        if self._screen is None:
            from notebook_accel.cli.watch.screen import Screen

            self._screen = Screen(self._subject, self)
        self._screen.add_rank(rank, who)

    def _on_channel(self, rank: int) -> None:
        channel = self._channels[rank]
        try:
            messages = channel.receive(wait=False)
            for message in messages or ():
                self._on_message(rank, message.header)
        except StreamError:
            messages = None  # its messages can no longer be decoded, but its output can still be read
        if messages is None:
            self._selector.unregister(channel)
            channel.close()
            del self._channels[rank]

    def _on_message(self, rank: int, header: Mapping[str, Any]) -> None:
        assert self._screen is not None
        if rank == LAUNCHER and "of" in header:  # the message reports the end of a rank
            rank, header = header["of"], {name: value for name, value in header.items() if name != "of"}
        event = from_wire(header)
        if isinstance(event, InputRequested):
            self._drain(rank)
            self._prompt(rank, event)
        else:
            self._screen.hear(rank, event)

    def _prompt(self, rank: int, event: InputRequested) -> None:
        assert self._screen is not None
        answer = None
        self._is_prompting = True
        with contextlib.suppress(KeyboardInterrupt):
            answer = self._screen.ask(rank, event)
        self._is_prompting = False
        self.send([rank], Answer(answer))

    def _on_output(self, rank: int, fd: int, stream: str) -> bool:
        """Reads output of a rank; returns whether there may be more."""
        assert self._screen is not None
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if data:
            self._screen.write(rank, stream, data)
        else:
            self._selector.unregister(fd)
            os.close(fd)
            del self._pipes[rank][fd]
        return bool(data)

    def _drain(self, rank: int) -> None:
        for fd, stream in [*self._pipes[rank].items()]:
            while self._on_output(rank, fd, stream):
                pass

    def _disconnect(self, rank: int) -> None:
        """Reads the last messages and output of a rank that has ended. Its children may still hold its pipes open."""
        while rank in self._channels and self._channels[rank].has_data():
            self._on_channel(rank)
        self._drain(rank)
        for fd in self._pipes.pop(rank):
            self._selector.unregister(fd)
            os.close(fd)
        if rank in self._channels:
            self._selector.unregister(self._channels[rank])
            self._channels.pop(rank).close()

    def _show_requests(self) -> None:
        if self._screen is None:
            return
        self._screen.interrupted(self._interrupts)
        while self._notices:
            self._screen.notice(self._notices.pop(0))
