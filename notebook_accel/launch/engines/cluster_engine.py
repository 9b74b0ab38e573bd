"""The engine for ranks on the nodes of a cluster: starts the bridge process, and communicates with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from notebook_accel import errors
from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.cluster_ranks import ClusterRanks
from notebook_accel.launch.engines.contract import Engine, NodeInfo, RanksSpec
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.show import console
from notebook_accel.launch.system import installed, memory, own_process, processes
from notebook_accel.launch.system.node_environment import shared_environment
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel, pair

_ENTRY = "notebook_accel.launch.cluster.bridge.main:main"
_WHAT = "the process that reaches the cluster"
NAME = "cluster"
JOIN_TIMEOUTS = (15.0, 30.0, 60.0)
"""Seconds for each attempt to join a cluster that may be stuck."""
_SURVEY_LIFETIME = 30.0
"""Seconds for which the result of a survey is reused."""


class ClusterEngine(Engine):
    """Starts ranks on the nodes of one cluster.

    Args:
        address: The cluster's.
        insecure: Accept a cluster that requires no token.
    """

    name = NAME

    def __init__(self, address: str, *, insecure: bool = False) -> None:
        self.address = address
        self._insecure = insecure
        self._lock = threading.RLock()
        self.bridge: Bridge | None = None
        """The process that reaches the cluster; `None` while there is none."""
        self._surveyed: tuple[float, list[NodeInfo]] = (0.0, [])
        self._modules: dict[str, None] = {}
        """Modules that the nodes import for ranks, in order."""

    def warm(self, *, script: bool = False) -> None:
        with self._lock:
            self._current()

    def preload(self, modules: Sequence[str]) -> None:
        with self._lock:
            new = [name for name in modules if name not in self._modules]
            self._modules |= dict.fromkeys(new)
            if self.bridge is not None and new:
                self.bridge.preload(new)

    def nodes(self, least: int = 1) -> list[NodeInfo]:
        """As in the contract; the nodes are at most half a minute old."""
        at, found = self._surveyed
        if len(found) < least or time.monotonic() - at > _SURVEY_LIFETIME:
            found = self._survey()
            self._surveyed = time.monotonic(), found
        return found

    def _survey(self) -> list[NodeInfo]:
        *first, last = JOIN_TIMEOUTS
        for timeout in first:
            answer = self._request_survey(timeout)
            if not answer.get("again"):
                break
            console.current.notice(f"{answer['error']}\nTrying once more, for longer.")
        else:
            answer = self._request_survey(last)
        if "error" in answer:
            raise LaunchError(answer["error"])
        return [NodeInfo(**each) for each in answer["nodes"]]

    def _request_survey(self, timeout: float) -> dict[str, Any]:
        """The bridge's reply: the cluster's nodes, or an error, after which a new bridge is needed."""
        own_end, bridge_end = pair()
        with contextlib.closing(Channel(own_end)) as answer:
            with bridge_end:
                bridge = self._send({"op": "survey", "timeout": timeout}, [bridge_end.fileno()])
            # Waits on a socket, not in the cluster's library, so that an interrupt is handled at once and does no harm.
            found = next((message.header for message in answer.receive(wait=True) or ()), None)
        if found is None or "error" in found:
            found = found or {"error": bridge.why_it_ended()}
            self.close()  # the next one reads the environment again
        return found

    def _start(self, spec: RanksSpec, loop: EventLoop) -> Ranks:
        if spec.rendezvous.listener is not None:
            spec.rendezvous.listener.close()  # the ranks join at a store on one of the nodes
        self.nodes()  # joins the cluster if necessary
        own_end, bridge_end = pair()
        with bridge_end:
            bridge = self._send({"op": "group"}, [bridge_end.fileno()])
        return ClusterRanks(bridge.why_it_ended, Channel(own_end), spec, own(os.getcwd(), sys.path), loop)

    def close(self) -> None:
        with self._lock:
            if self.bridge is not None:
                self.bridge.close()
            self.bridge = None
            self._surveyed = 0.0, []

    def _send(self, header: Mapping[str, Any], fds: Sequence[int] = ()) -> Bridge:
        with self._lock:
            bridge = self._current()
            try:
                bridge.control.send(header, fds=fds)
            except OSError:
                # The bridge was killed from outside; a new one serves as well.
                self.close()
                bridge = self._current()
                bridge.control.send(header, fds=fds)
            return bridge

    def _current(self) -> Bridge:
        if self.bridge is None:
            self.bridge = Bridge(self.address, self._insecure)
            self.bridge.preload(list(self._modules))
        return self.bridge


class Bridge:
    """The driver's connection to the bridge."""

    def __init__(self, address: str, insecure: bool) -> None:
        own_end, bridge_end = pair()
        self.control = Channel(own_end)
        self._log: IO[bytes] = memory.open_log()  # lives as long as the bridge
        try:
            self.process: subprocess.Popen[bytes] = processes.start(
                _ENTRY, bridge_end, self._log, address, insecure, os.getpid()
            )
        except OSError as error:
            self.control.close()
            raise LaunchError(f"{_WHAT} can't be started: {error}") from error

    def preload(self, modules: Sequence[str]) -> None:
        """Has the nodes' fork servers import modules while they are idle."""
        with contextlib.suppress(OSError):  # it has ended, which the next launch will find
            self.control.send({"op": "preload", "modules": list(modules), "env": shared_environment(os.environ)})

    def why_it_ended(self) -> str:
        """Why it has ended, according to its log."""
        return processes.why_it_ended(_WHAT, self._log)

    def close(self) -> None:
        """Ends the bridge, and everything that it has started."""
        self.control.close()
        self._log.close()
        # Without a thread, it stays a zombie.
        own_process.start_thread_if_allowed(self.process.wait, "notebook-accel-reaper")


def own(cwd: str, path: Sequence[str]) -> list[str]:
    """The folders with the user's code: the working directory, and those on `sys.path` without installed packages."""
    others = tuple(os.path.join(each, "") for each in (os.path.expanduser("~/.ipython"), _package_root()))
    found = [cwd]
    for folder in path:
        ended = os.path.join(folder, "")
        exists = os.path.isabs(folder) and os.path.isdir(folder)
        if exists and not (installed.is_installed(ended) or ended.startswith(others)):
            found.append(folder)
    return list(dict.fromkeys(found))


def _package_root() -> str:
    """The folder that this package is imported from. Every node has its own."""
    return os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))
