"""The ranks of one group on an agent's node."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from notebook_accel.errors import LaunchError, StreamError
from notebook_accel.events import Bar, Exited, Heartbeat, Metrics
from notebook_accel.launch.cluster.agent.partial_lines import PartialLines
from notebook_accel.launch.cluster.agent.rank_messages import RankMessages, with_weight
from notebook_accel.launch.cluster.agent.stack_files import StackFiles
from notebook_accel.launch.cluster.protocol import UNREAD, Frame
from notebook_accel.launch.engines.contract import GroupSpec, Rendezvous
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.engines.server_ranks import ServerRanks
from notebook_accel.launch.system import network_interfaces
from notebook_accel.launch.wire.constants import STACKS_SIGNAL

_READ = 2**18
_PROGRESS = {Bar.kind, Metrics.kind, Heartbeat.kind}


class LocalGroup:
    """Relays messages between the ranks on this node and the bridge.

    Args:
        header: The header of the frame that starts the group.
        engine: Starts the ranks.
        selector: The selector of the agent's thread.
        add: Takes a frame for the bridge.
    """

    def __init__(
        self,
        header: Mapping[str, Any],
        engine: ServerEngine,
        selector: selectors.BaseSelector,
        add: Callable[[Frame], object],
    ) -> None:
        self._number: int = header["group"]
        self._members: list[int] = header["members"]
        self._rank_messages = RankMessages(header["label"], header["ahead"])
        self._engine = engine
        self._selector = selector
        self._add = add
        self._ranks: ServerRanks | None = None
        self._payload: int | None = None
        """The memory file of the latest call."""
        self._running = len(self._members)
        """The number of ranks that have not ended."""
        self._unread = [0] * len(self._members)
        self._registered: set[int] = set()
        """Descriptors that are registered with the selector."""
        self._partial_lines = PartialLines()
        self._stacks = StackFiles(self._send_stacks)

    def start(
        self, header: Mapping[str, Any], rendezvous: Rendezvous, environ: Mapping[str, str], arranged: Mapping[str, str]
    ) -> None:
        """Starts the ranks.

        Args:
            header: The header of the frame that starts the group.
            rendezvous: The rendezvous that the ranks join: its address, and the listener if this is the first node.
            environ: This machine's environment.
            arranged: Variables that only this node knows; they override all others.
        """
        interface = network_interfaces.of(rendezvous.host)
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if interface else ()
        defaults = {**dict.fromkeys(names, str(interface)), **environ}
        spec = GroupSpec(
            environments=[{**defaults, **told, **arranged} for told in header["environments"]],
            rendezvous=rendezvous,
            heartbeat=header["heartbeat"],
            pace=header["pace"],
        )
        try:
            self._ranks = self._engine.start(spec)
        except (LaunchError, OSError) as error:
            self._send({"op": "failed", "error": str(error)})
            return
        self._selector.register(self._ranks, selectors.EVENT_READ, self._on_changes)
        for local in range(len(self._members)):
            self._read_from(local)

    def on_frame(self, header: dict[str, Any], blobs: Sequence[Any]) -> None:
        """Carries out a request of the bridge."""
        operation = header["op"]
        if operation == "payload":
            self._take_payload(blobs[0])
        elif self._ranks is None:
            return  # it could not be started, which has been reported
        elif operation == "say":
            self._send_to_rank(self._members.index(header["rank"]), header, blobs)
        elif operation == "finish":
            self._ranks.channels[self._members.index(header["rank"])].finish()
        elif operation == "signal":
            self._signal(self._members.index(header["rank"]), header["signum"])
        elif operation == "read":
            self._on_read(self._members.index(header["rank"]), header["bytes"])
        elif operation == "close_store":
            self._ranks.close_store()
        elif operation == "expect_ends":
            self._ranks.expect_ends()

    def pause(self) -> float:
        """Seconds until `check` has something to do."""
        return self._partial_lines.pause(self._stacks.pause())

    def check(self) -> None:
        """Does the work that is due."""
        self._stacks.check()
        for local, stream in self._partial_lines.due():
            if self._unread[local] <= UNREAD:  # otherwise the rest of the line would not be read either
                self._write(local, stream, self._partial_lines.take((local, stream)))

    def close(self) -> None:
        """Ends the remaining ranks."""
        for fd in list(self._registered):
            self._unregister(fd)
        if self._ranks is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._ranks)
            self._ranks.close()
        if self._payload is not None:
            os.close(self._payload)
        self._stacks.close()

    # To the ranks

    def _take_payload(self, data: Any) -> None:
        if self._payload is not None:
            os.close(self._payload)
        self._payload = os.memfd_create("notebook-accel", os.MFD_CLOEXEC)
        view = memoryview(data)
        while view.nbytes:
            view = view[os.write(self._payload, view) :]

    def _send_to_rank(self, local: int, header: dict[str, Any], blobs: Sequence[Any]) -> None:
        assert self._ranks is not None
        fds = [self._payload] if header["payload"] and self._payload is not None else []
        with contextlib.suppress(OSError):  # this rank has already died, which `_on_changes` reports
            self._ranks.channels[local].send(header["header"], blobs, fds)

    def _signal(self, local: int, signum: int) -> None:
        assert self._ranks is not None
        if signum == STACKS_SIGNAL:
            self._stacks.expect(local)
        self._ranks.signal(local, signum)

    # From the ranks

    def _send(self, header: dict[str, Any], blobs: Sequence[Any] = ()) -> None:
        self._add(({**header, "group": self._number}, blobs))

    def _send_about(self, local: int, operation: str, blobs: Sequence[Any] = (), **more: Any) -> None:
        self._send({"op": operation, "rank": self._members[local], **more}, blobs)

    def _send_counted(self, local: int, frame: Frame) -> None:
        """Sends a frame, whose weight counts as unread until the kernel has read it."""
        self._unread[local] += frame[0]["weight"]
        self._add(frame)

    def _send_stacks(self, local: int, content: bytes) -> None:
        self._send_about(local, "stacks", [content])

    def _read_from(self, local: int) -> None:
        """Registers a rank's channel and pipes, unless it has closed them."""
        assert self._ranks is not None
        channel = self._ranks.channels[local]
        if channel.is_open:
            self._register(channel.fileno(), partial(self._on_channel, local))
        for fd, stream in zip(self._ranks.outputs[local], ("stdout", "stderr"), strict=True):
            self._register(fd, partial(self._on_output, local, fd, stream))

    def _register(self, fd: int, on_readable: Callable[[], object]) -> None:
        if fd not in self._registered:
            self._registered.add(fd)
            self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def _unregister(self, fd: int) -> None:
        if fd in self._registered:
            self._registered.discard(fd)
            self._selector.unregister(fd)

    def _pause_if_full(self, local: int) -> None:
        """Stops reading from a rank while too much of its output is unread, so that its pipes fill and it waits."""
        assert self._ranks is not None
        if self._unread[local] > UNREAD:
            for fd in (self._ranks.channels[local].fileno(), *self._ranks.outputs[local]):
                self._unregister(fd)

    def _on_read(self, local: int, count: int) -> None:
        was_paused = self._unread[local] > UNREAD
        self._unread[local] -= count
        if was_paused and self._unread[local] <= UNREAD:
            self._read_from(local)

    def _on_channel(self, local: int) -> None:
        assert self._ranks is not None
        channel = self._ranks.channels[local]
        try:
            messages = channel.receive(wait=False)
        except StreamError:
            self._ranks.signal(local, signal.SIGKILL)  # its messages can no longer be decoded
            messages = None
        if messages is None:
            self._unregister(channel.fileno())
            self._send_about(local, "silent")
        for message in messages or ():
            if message.header.get("kind") not in _PROGRESS:
                self._take_output(local)  # it was written before
            if message.fds:
                self._stacks.add(local, message.fds[0])
            stacks = bool(message.fds)
            number = self._members[local]
            said = self._rank_messages.said(self._number, number, message.header, message.blobs, stacks=stacks)
            self._send_counted(local, said)
        self._pause_if_full(local)

    def _on_output(self, local: int, fd: int, stream: str) -> bool:
        """Passes on the output; returns whether there may be more."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._unregister(fd)
            return False
        self._write(local, stream, self._partial_lines.add((local, stream), data))
        self._pause_if_full(local)
        return True

    def _write(self, local: int, stream: str, data: bytes) -> None:
        if data:
            told = {"op": "wrote", "group": self._number, "rank": self._members[local], "stream": stream}
            self._send_counted(local, with_weight(told, [data]))

    def _take_output(self, local: int) -> None:
        assert self._ranks is not None
        for fd, stream in zip(self._ranks.outputs[local], ("stdout", "stderr"), strict=True):
            while self._on_output(local, fd, stream):
                pass
            self._write(local, stream, self._partial_lines.take((local, stream)))

    def _on_changes(self) -> None:
        assert self._ranks is not None
        try:
            found = self._ranks.new_exits()
        except LaunchError as error:
            self._selector.unregister(self._ranks)
            self._send({"op": "failed", "error": str(error)})
            return
        for local, exited in found:
            self._on_exit(local, exited)
        self._running -= len(found)
        if not self._running:
            self._selector.unregister(self._ranks)  # only its end is still to come

    def _on_exit(self, local: int, exited: Exited) -> None:
        assert self._ranks is not None
        channel = self._ranks.channels[local]
        while channel.is_open and channel.has_data():
            self._on_channel(local)
        self._take_output(local)
        for fd in (channel.fileno(), *self._ranks.outputs[local]):
            self._unregister(fd)
        self._stacks.send(local)
        status = exited.code if exited.signal is None else -exited.signal
        self._send_about(
            local, "ended", status=status, at=self._rank_messages.here(exited.at), peak=exited.peak_resident
        )
