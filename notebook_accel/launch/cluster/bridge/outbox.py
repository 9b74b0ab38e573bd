"""Queues a rank's messages and output for the kernel, in order, so that a slow reader does not block the bridge."""

from __future__ import annotations

import array
import contextlib
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from notebook_accel.launch.wire.stream import close_all

_Item = tuple[int, memoryview, Sequence[int]]


class Outlet:
    """The bridge's ends of a rank's channel and pipes.

    Args:
        selector: Reports when one of them has room again.
        fds: The channel, standard output and standard error.
    """

    def __init__(self, selector: selectors.BaseSelector, fds: Sequence[int]) -> None:
        self._selector = selector
        self._channel = socket.socket(fileno=os.dup(fds[0]))
        self._pipes = {"stdout": fds[1], "stderr": fds[2]}
        for fd in self._pipes.values():
            os.set_blocking(fd, False)
        self._queue: deque[_Item | Callable[[], object]] = deque()
        self._stuck: int | None = None
        """The descriptor that has no room; `None` if all have."""

    def write(self, stream: str, data: bytes) -> None:
        """Output."""
        self._add(self._pipes[stream], data)

    def say(self, parts: Sequence[Any], fds: Sequence[int] = ()) -> None:
        """Queues encoded messages. The descriptors are sent with the first of them and are then closed."""
        for part in parts:
            self._add(self._channel.fileno(), part, fds)
            fds = ()

    def then(self, act: Callable[[], object]) -> None:
        """Calls a function once everything queued before has been taken."""
        self._queue.append(act)
        self._pump()

    def finish(self) -> None:
        """Ends the messages."""
        self.then(self._shut)

    def close(self) -> None:
        """Closes all descriptors, and drops everything that has not been taken."""
        self._unblock()
        for item in self._queue:
            if not callable(item):
                close_all(item[2])
        self._queue.clear()
        self._channel.close()
        close_all(list(self._pipes.values()))
        self._pipes.clear()

    def _shut(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def _add(self, fd: int, data: Any, fds: Sequence[int] = ()) -> None:
        self._queue.append((fd, memoryview(data).cast("B"), fds))
        if self._stuck is None:
            self._pump()

    def _pump(self) -> None:
        if self._stuck is not None:
            return
        while self._queue:
            item = self._queue.popleft()
            if callable(item):
                item()
            elif not self._write(*item):
                return

    def _write(self, fd: int, view: memoryview, fds: Sequence[int]) -> bool:
        """Writes; returns whether there was room for all of it."""
        while view.nbytes:
            try:
                sent = self._write_some(fd, view, fds)
            except BlockingIOError:
                self._queue.appendleft((fd, view, fds))
                self._stuck = fd
                self._selector.register(fd, selectors.EVENT_WRITE, self._on_room)
                return False
            except OSError:  # the kernel no longer reads
                sent = view.nbytes
            close_all(fds)
            fds = ()
            view = view[sent:]
        return True

    def _write_some(self, fd: int, view: memoryview, fds: Sequence[int]) -> int:
        if fd != self._channel.fileno():
            return os.write(fd, view)
        if fds:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
            return self._channel.sendmsg([view], [rights], socket.MSG_DONTWAIT)  # `send_fds` drops its flags
        return self._channel.send(view, socket.MSG_DONTWAIT)

    def _on_room(self) -> None:
        self._unblock()
        self._pump()

    def _unblock(self) -> None:
        if self._stuck is not None:
            self._selector.unregister(self._stuck)
            self._stuck = None
