"""Relays one rank between the kernel's sockets and pipes and the rank's node."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Sequence
from typing import Any

from notebook_accel.launch.cluster.bridge.node import Node
from notebook_accel.launch.cluster.bridge.outbox import Outlet
from notebook_accel.launch.wire.stream import Channel, Message

_REPORT_READ = 2**16
"""How many bytes the kernel reads before this is reported to the agent."""


class RelayedRank:
    """One rank, from the kernel's request to start it to its end.

    Args:
        message: The kernel's request.
        selector: The selector of the bridge's thread.
        on_channel: Called when the kernel has sent the rank a message.
        send_read: Called now and then with the number of bytes that the kernel has taken since the last call.
    """

    def __init__(
        self,
        message: Message,
        selector: selectors.BaseSelector,
        on_channel: Callable[[], object],
        send_read: Callable[[int], object],
    ) -> None:
        channel, out, err = message.fds
        self.environment: dict[str, str] = message.header["env"]
        self.channel = Channel(socket.socket(fileno=channel))
        """Receives the kernel's messages to the rank."""
        self.node: Node | None = None
        self.ended = False
        self._selector = selector
        self._outlet = Outlet(selector, (channel, out, err))
        self._send_read = send_read
        self._read = 0
        """Bytes that the kernel has read since the last report to the agent."""
        self._stacks: int | None = None
        """A stand-in for the rank's stacks file, which the kernel reads."""
        selector.register(self.channel, selectors.EVENT_READ, on_channel)

    def say(self, parts: Sequence[Any], weight: int, *, stacks: bool) -> None:
        """Passes the rank's messages on to the kernel."""
        fds: list[int] = []
        if stacks:
            self._stacks = os.memfd_create("notebook-accel-stacks", os.MFD_CLOEXEC)
            fds = [os.dup(self._stacks)]
        self._outlet.say(parts, fds)
        self._outlet.then(lambda: self._on_taken(weight))

    def write(self, stream: str, data: Any, weight: int) -> None:
        """Passes the rank's output on to the kernel."""
        self._outlet.write(stream, data)
        self._outlet.then(lambda: self._on_taken(weight))

    def write_stacks(self, content: Any) -> None:
        """Copies the content of its stacks file to the stand-in."""
        if self._stacks is not None:
            os.ftruncate(self._stacks, 0)
            os.pwrite(self._stacks, content, 0)

    def stop_reading(self) -> None:
        """Stops reading the kernel's messages to the rank."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self.channel)

    def finish(self) -> None:
        """Ends the rank's messages."""
        self._outlet.finish()

    def end(self, then: Callable[[], object]) -> None:
        """Handles the rank's end; calls `then` once the kernel has taken all of its messages and output."""
        if not self.ended:
            self.ended = True
            self._outlet.then(then)
            self._outlet.finish()

    def close(self) -> None:
        """Closes all descriptors, and drops everything that has not been taken."""
        self.stop_reading()
        self.channel.close()
        self._outlet.close()
        if self._stacks is not None:
            os.close(self._stacks)

    def _on_taken(self, count: int) -> None:
        self._read += count
        if self._read >= _REPORT_READ:
            self._send_read(self._read)
            self._read = 0
