"""The bridge: the process that connects the kernel to a cluster's nodes.

Only the bridge imports the cluster's library, so that its crashes and signal handlers do not affect the kernel. The
bridge and everything that it has started end with the kernel.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel.launch.cluster import launchers
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.bridge import agents
from notebook_accel.launch.cluster.bridge.node_pool import NodePool
from notebook_accel.launch.cluster.bridge.relay import Relay
from notebook_accel.launch.engines.contract import NodeRequest
from notebook_accel.launch.system import limits
from notebook_accel.launch.wire.event_loop import Calls, EventLoop
from notebook_accel.launch.wire.stream import Channel, Message

_TICK = 1.0
_CONNECT_TIMEOUT = 60.0
"""Seconds to connect to a cluster that the kernel has not used before."""
_EXIT_TIMEOUT = 2.0
"""Seconds to disconnect from the cluster."""


class Bridge:
    """The loop of the process. Calls that may block, such as those of the cluster's library, run on a second thread."""

    def __init__(self, address: str, insecure: bool, control: Channel, kernel: int) -> None:
        self._launcher = launchers.make(address, insecure=insecure)
        self._control = control
        self._kernel = kernel
        self._preload: dict[str, Any] = {"modules": [], "env": {}}
        """The modules to import for ranks, and the environment for these imports."""
        self._pools: dict[NodeRequest, NodePool] = {}
        self._awaiting: dict[NodeRequest, list[Relay]] = {}
        """Groups that wait for nodes."""
        self._relays: dict[int, Relay] = {}
        self._opened = 0
        self._connected = False
        self._chores: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._loop = EventLoop()
        self._calls = Calls(self._loop)

    def run(self) -> None:
        """Serves until the kernel has ended."""
        self._loop.register(self._control, self._on_control)
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._loop.register(os.pidfd_open(self._kernel), self._exit_with_kernel)
        threading.Thread(target=self._do_chores, name="cluster", daemon=True).start()
        while True:
            self._loop.run_once(_TICK)
            self._check_pools()
            for relay in self._relays.values():
                relay.flush()

    def _check_pools(self) -> None:
        now = time.monotonic()
        for request, pool in list(self._pools.items()):
            pool.check(now)
            if pool.is_idle(now) or not (pool.is_whole or pool.groups):
                self._release(request)

    def _exit_with_kernel(self) -> None:
        """Ends everything that it has started, and exits, because the kernel has ended."""
        threading.Timer(_EXIT_TIMEOUT, os._exit, (0,)).start()
        for relay in self._relays.values():
            relay.close()
        for pool in self._pools.values():
            self._stop(pool)
        self._chores.put(lambda: os._exit(0))
        signal.pause()

    # Threads

    def _do_chores(self) -> None:
        while True:
            self._chores.get()()

    def _connect(self, timeout: float) -> None:
        """Connects to the cluster, unless it is already connected."""
        if not self._connected:
            self._launcher.connect(timeout)
            self._connected = True

    # Requests of the kernel

    def _on_control(self) -> None:
        messages = self._control.receive(wait=False)
        if messages is None:
            self._exit_with_kernel()
        for message in messages or ():
            self._on_message(message)

    def _on_message(self, message: Message) -> None:
        operation = message.header["op"]
        if operation == "group":
            self._open(message.fds[0])
        elif operation == "survey":
            answer, timeout = Channel(socket.socket(fileno=message.fds[0])), message.header["timeout"]
            self._chores.put(lambda: self._survey(answer, timeout))
        elif operation == "preload":
            self._preload = {**message.header, "modules": self._preload["modules"] + message.header["modules"]}
            for pool in self._pools.values():
                pool.broadcast((message.header, ()))

    def _survey(self, answer: Channel, timeout: float) -> None:
        """Connects to the cluster if necessary, and replies with its nodes."""
        with contextlib.closing(answer), contextlib.suppress(OSError):
            try:
                self._connect(timeout)
                found = [vars(node) for node in self._launcher.survey()]
            except Exception as error:
                answer.send({"error": _text(error), "again": isinstance(error, ClusterError) and error.again})
            else:
                answer.send({"nodes": found})

    def _open(self, fd: int) -> None:
        self._opened += 1
        kernel = Channel(socket.socket(fileno=fd))
        relay = Relay(self._opened, kernel, self._find)
        self._relays[relay.number] = relay
        self._loop.register(kernel, lambda: self._on_group(relay, kernel))

    def _on_group(self, relay: Relay, kernel: Channel) -> None:
        if relay.on_kernel():
            return
        self._loop.unregister(kernel)
        relay.close()
        del self._relays[relay.number]
        if relay.pool is not None:
            relay.pool.groups.pop(relay.number, None)

    # Nodes

    def _find(self, request: NodeRequest, relay: Relay) -> None:
        """Starts a group on held nodes, or requests nodes."""
        pool = self._pools.get(request)
        if pool is not None and pool.is_whole:
            pool.groups[relay.number] = relay
            relay.begin(pool)
            return
        waiting = self._awaiting.setdefault(request, [])
        waiting.append(relay)
        if len(waiting) == 1:
            for other in list(self._pools):
                if not self._pools[other].groups:
                    self._release(other)  # they may hold nodes that are needed
            self._chores.put(lambda: self._start(request, relay.environment))

    def _start(self, request: NodeRequest, environ: Mapping[str, str]) -> None:
        try:
            self._connect(_CONNECT_TIMEOUT)
            found = agents.start(self._launcher, request, environ)
        except Exception as error:
            text = _text(error)
            self._calls.add(lambda: self._on_start_failed(request, text))
        else:
            self._calls.add(lambda: self._on_started(request, NodePool(*found, self._loop)))

    def _on_started(self, request: NodeRequest, pool: NodePool) -> None:
        if request in self._pools:
            self._release(request)  # a pool with a lost node
        self._pools[request] = pool
        pool.broadcast(({"op": "preload", **self._preload}, ()))
        for relay in self._awaiting.pop(request):
            if relay.number in self._relays:
                pool.groups[relay.number] = relay
                relay.begin(pool)

    def _on_start_failed(self, request: NodeRequest, error: str) -> None:
        for relay in self._awaiting.pop(request):
            if relay.number in self._relays:
                relay.fail(error)

    def _release(self, request: NodeRequest) -> None:
        pool = self._pools.pop(request)
        self._stop(pool)

    def _stop(self, pool: NodePool) -> None:
        pool.close()
        self._chores.put(pool.agents.stop)


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, ClusterError) else f"{type(error).__name__}: {error}"


def main(fd: int, address: str, insecure: bool, kernel: int) -> None:
    """The entry point of the process."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # the kernel handles both, and then needs the bridge
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    limits.raise_file_limit_fully()  # every node connects
    control: Any = Channel(socket.socket(fileno=fd))
    Bridge(address, insecure, control, kernel).run()
