"""The agent of a node: starts ranks on its own fork server, and relays messages between them and the bridge.

It does not depend on what has started it.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from notebook_accel.errors import StreamError
from notebook_accel.launch.cluster import event_frames
from notebook_accel.launch.cluster.agent.node_ranks import NodeRanks
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.cluster.frame_queue import FrameQueue
from notebook_accel.launch.cluster.protocol import WAIT, Frame
from notebook_accel.launch.cluster.shared_folders import Folders
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.wire.constants import PREEMPTION_GRACE
from notebook_accel.launch.wire.event_loop import Calls, EventLoop
from notebook_accel.launch.wire.mirrored import notebook_state

_TICK = 1.0
_BACKLOG = 4096
_SEND_TIMEOUT = 2.0
"""Seconds to send the last frames of a node that shuts down."""
_ALIVE: Frame = {"op": "alive"}, ()


class NodeAgent:
    """Runs groups of ranks on this node. One thread does all the work, and that of a queue sends frames.

    Args:
        connection: The connection to the bridge.
        environ: Environment variables to set for future ranks; the rest of their environment is this node's.
    """

    def __init__(self, connection: FrameConnection, environ: Mapping[str, str]) -> None:
        self._connection = connection
        self._outgoing = FrameQueue(self._send_frames, connection.shut, idle=WAIT)
        self._loop = EventLoop()
        self._groups: dict[int, NodeRanks] = {}
        self._offers: dict[int, socket.socket] = {}
        """Listeners for the rendezvous of later groups, by port. They already listen, so no launch waits for them."""
        self._folder = tempfile.mkdtemp(prefix="notebook-accel-")
        self._folders = Folders(self._folder)
        self._environ = _own_environment()
        self._import_environ: Mapping[str, str] = self._environ
        """The environment for preloading imports: this node's, with the variables that the notebook has set."""
        self._connected = True
        self._leave_at = math.inf
        """When to end at the latest since the node shuts down, on the monotonic clock."""
        self._engine = ServerEngine("fork", detached=True)
        self._engine.warm({**self._environ, **environ})

    def run(self) -> None:
        """Serves until the connection ends, or the node shuts down; then ends everything."""
        self._loop.register(self._connection, self._receive)
        try:
            with self._noticing_shutdown():
                while self._connected and not self._has_left():
                    self._loop.run_once(_TICK)
                    self._outgoing.flush()
            self._outgoing.close()
            if self._connected:
                self._outgoing.join(_SEND_TIMEOUT)
        finally:
            self._connection.shut()
            for number in list(self._groups):
                self._groups.pop(number).close()
            for listener in self._offers.values():
                listener.close()
            self._engine.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _noticing_shutdown(self) -> Iterator[None]:
        """Notices that the node shuts down: SIGTERM then reaches all of its processes.

        Does nothing off the main thread, where Python delivers no signal.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        calls = Calls(self._loop)
        before = signal.signal(signal.SIGTERM, lambda *_: calls.add(self._leave))
        try:
            yield
        finally:
            # `None` means that the previous handler was not installed by Python, so it can't be restored.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
            calls.close()

    def _send_frames(self, frames: Sequence[Frame]) -> None:
        """Sends frames to the bridge, or a sign of life, so that each side detects that the other is lost."""
        try:
            self._connection.send(event_frames.coalesce(frames) or [_ALIVE])
        except OSError:
            self._connection.shut()

    def _leave(self) -> None:
        """Makes training runs end with a checkpoint, and their ranks on other nodes too, after the same step."""
        if self._leave_at < math.inf:
            return  # SIGTERM has come again
        self._leave_at = time.monotonic() + PREEMPTION_GRACE
        self._outgoing.add(({"op": "leaving"}, ()))
        for group in self._groups.values():
            group.preempt()

    def _has_left(self) -> bool:
        """Whether the node shuts down, and no training on it has anything left to save, or time for it."""
        if self._leave_at == math.inf:
            return False
        return time.monotonic() > self._leave_at or not any(group.is_saving for group in self._groups.values())

    def _receive(self) -> None:
        try:
            frames = self._connection.receive()
        except (EOFError, OSError, StreamError):
            self._connected = False
            return
        for header, blobs in frames:
            self._on_frame(header, blobs)

    def _on_frame(self, header: dict[str, Any], blobs: Sequence[Any]) -> None:
        operation, number = header["op"], header.get("group", 0)
        if operation == "start":
            self._start(header)
        elif operation == "offer":
            self._offer()
        elif operation == "compare":
            lacking = self._folders.compare(header["folders"])
            self._outgoing.add(({"op": "compared", "group": number, "lacking": lacking}, ()))
        elif operation == "folder":
            self._folders.take(header, blobs)
        elif operation == "preload":
            self._import_environ = {**self._environ, **header["env"]}
            self._engine.preload(header["modules"], self._import_environ)
        elif operation == "close":
            if number in self._groups:
                self._groups.pop(number).close()
            self._engine.preload((), self._import_environ)  # work that it postponed while it was busy
        elif number in self._groups:
            self._groups[number].on_frame(header, blobs)

    def _offer(self) -> None:
        listener = socket.create_server((self._connection.address, 0), backlog=_BACKLOG)
        host, port = listener.getsockname()[:2]
        self._offers[port] = listener
        self._outgoing.add(({"op": "offered", "host": host, "port": port}, ()))

    def _start(self, header: dict[str, Any]) -> None:
        listener = self._offers.pop(header["port"]) if header["first"] else None
        group = NodeRanks(header, self._engine, self._loop, self._outgoing.add)
        self._groups[header["group"]] = group
        rendezvous = Rendezvous(host=self._connection.address, port=header["port"], listener=listener)
        arranged = {
            "MASTER_ADDR": header["host"],
            "MASTER_PORT": str(header["port"]),
            **notebook_state.folders_environment(self._folders.paths),
        }
        group.start(header, rendezvous, self._environ, arranged)


def _own_environment() -> dict[str, str]:
    """This node's environment, without the variables that the cluster's library sets for its own processes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHONBREAKPOINT"))}
