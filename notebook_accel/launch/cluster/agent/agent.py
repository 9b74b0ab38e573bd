"""The agent of a node: starts ranks on its own fork server, and relays messages between them and the bridge.

It does not depend on the kind of cluster. Its host calls `deliver` and `poll`, from any thread; the agent's own thread
does all other work.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from notebook_accel.launch.cluster.agent import rank_messages
from notebook_accel.launch.cluster.agent.backlog import Backlog
from notebook_accel.launch.cluster.agent.local_group import LocalGroup
from notebook_accel.launch.cluster.protocol import LEASE, Frame
from notebook_accel.launch.cluster.select_once import select_once
from notebook_accel.launch.cluster.shared_folders import Folders
from notebook_accel.launch.cluster.versions import versions
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.wire import notebook_state

_TICK = 1.0
_BACKLOG = 4096


class NodeAgent:
    """Runs groups of ranks on this node.

    Args:
        address: The address at which other machines reach this one.
        environ: Environment variables to set for future ranks; the rest of their environment is this machine's.
    """

    def __init__(self, address: str, environ: Mapping[str, str]) -> None:
        self._address = address
        self._backlog = Backlog()
        self._inbox: deque[Sequence[Frame]] = deque()
        self._out_of_order: dict[int, Sequence[Frame]] = {}
        self._expected = 0
        self._lock = threading.Lock()
        self._wakeup = socket.socketpair()
        for end in self._wakeup:
            end.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._groups: dict[int, LocalGroup] = {}
        self._offers: dict[int, socket.socket] = {}
        """Listeners for the rendezvous of later groups, by port. They already listen, so no launch waits for them."""
        self._folder = tempfile.mkdtemp(prefix="notebook-accel-")
        self._folders = Folders(self._folder)
        self._environ = _own_environment()
        self._import_environ: Mapping[str, str] = self._environ
        """The environment for preloading imports: this node's, with the variables that the notebook has set."""
        self._last_poll = math.inf
        """When the last poll began or ended; infinity before the first."""
        self._closing = False
        self._failure = ""
        """Why the agent's thread failed; empty while it has not."""
        self._engine = ServerEngine("fork", detached=True)
        self._engine.warm({**self._environ, **environ})
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._on_wakeup)
        self._thread = threading.Thread(target=self._run, name="notebook-accel-agent", daemon=True)
        self._thread.start()

    # Called by the host

    def info(self) -> dict[str, Any]:
        """Returns the values that the bridge compares with its own, and this node's clock."""
        return {
            "host": socket.gethostname(),
            "address": self._address,
            "versions": versions(),
            "python": sys.executable,
            "clock": time.time(),
        }

    def deliver(self, number: int, frames: Sequence[Frame]) -> None:
        """Takes frames. Calls are numbered from 0; one that arrives early waits for those before it."""
        with self._lock:
            self._out_of_order[number] = frames
            while self._expected in self._out_of_order:
                self._inbox.append(self._out_of_order.pop(self._expected))
                self._expected += 1
        self._wake()

    def poll(self, after: int, wait: float) -> tuple[int, list[Frame]]:
        """Returns the next frames to send, and acknowledges the earlier ones.

        Args:
            after: The number of the last frame that has arrived.
            wait: How many seconds to wait if there are no frames yet.

        Returns:
            The `after` for the next call, and the frames.
        """
        self._last_poll = time.monotonic()
        if self._failure:
            raise RuntimeError(f"the agent has failed: {self._failure}")
        try:
            reached, frames = self._backlog.take(after, wait)
            return reached, rank_messages.coalesce(frames)
        finally:
            self._last_poll = time.monotonic()

    def close(self) -> None:
        """Ends everything."""
        self._closing = True
        self._wake()
        self._thread.join(5)

    # The agent's own thread

    def _run(self) -> None:
        try:
            while not self._closing:
                pauses = [group.pause() for group in self._groups.values()]
                select_once(self._selector, min([_TICK, *pauses]))
                for group in list(self._groups.values()):
                    group.check()
                if time.monotonic() - self._last_poll > LEASE:
                    self._failure = f"the bridge sent no poll for {LEASE:g} s, so the agent has ended"
                    self._closing = True
        except BaseException:
            self._failure = traceback.format_exc()
            raise
        finally:
            self._end_groups()
            for listener in self._offers.values():
                listener.close()
            self._engine.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end_groups(self) -> None:
        for number in list(self._groups):
            self._groups.pop(number).close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wakeup[1].send(b".")

    def _on_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup[0].recv(4096):
                pass
        while self._inbox:
            for header, blobs in self._inbox.popleft():
                self._on_frame(header, blobs)

    def _on_frame(self, header: dict[str, Any], blobs: Sequence[Any]) -> None:
        operation, number = header["op"], header.get("group", 0)
        if operation == "start":
            self._start(header)
        elif operation == "offer":
            self._offer()
        elif operation == "compare":
            lacking = self._folders.compare(header["folders"])
            self._backlog.add(({"op": "compared", "group": number, "lacking": lacking}, ()))
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
        listener = socket.create_server((self._address, 0), backlog=_BACKLOG)
        host, port = listener.getsockname()[:2]
        self._offers[port] = listener
        self._backlog.add(({"op": "offered", "host": host, "port": port}, ()))

    def _start(self, header: dict[str, Any]) -> None:
        listener = self._offers.pop(header["port"]) if header["first"] else None
        group = LocalGroup(header, self._engine, self._selector, self._backlog.add)
        self._groups[header["group"]] = group
        rendezvous = Rendezvous(host=self._address, port=header["port"], listener=listener)
        arranged = {
            "MASTER_ADDR": header["host"],
            "MASTER_PORT": str(header["port"]),
            **notebook_state.folders_environment(self._folders.paths),
        }
        group.start(header, rendezvous, self._environ, arranged)


def _own_environment() -> dict[str, str]:
    """This node's environment, without the variables that the cluster's library sets for its own processes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHONBREAKPOINT"))}
