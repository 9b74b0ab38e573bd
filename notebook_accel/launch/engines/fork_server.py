"""The engine that starts ranks through a server: starts it, keeps it warm, replaces it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines import base_server
from notebook_accel.launch.engines.contract import Engine, RanksSpec
from notebook_accel.launch.engines.load_time import load_time
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.engines.server_connection import Server
from notebook_accel.launch.engines.server_ranks import ServerRanks
from notebook_accel.launch.system import limits, memory, own_process
from notebook_accel.launch.wire.constants import Streams
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel, pair


class ServerEngine(Engine):
    """Starts ranks through a server: by fork from a warm one, or by spawn from one that only starts processes."""

    _ranks = ServerRanks

    def __init__(self, method: str, *, detached: bool = False) -> None:
        self.name = {"fork": "forkserver", "spawn": "spawn", "xla": "xla"}[method]
        self._method = method
        self._detached = detached
        """The server is not a child of this process, so that it outlives this process and can end the ranks."""
        self._lock = threading.RLock()
        self.server: Server | None = None
        """The server that starts ranks; `None` before the first launch."""
        self.next: Server | None = None
        """The server that will replace it, while that imports modules."""
        self._replaced: Server | None = None
        """The previous server. It is retired after the first launch that has used the current one."""
        self._next_modules: list[str] = []
        """The modules that the next server imports, beside those of the current one."""
        self._pending_modules: list[str] = []
        self._all_modules: dict[str, None] = {}
        """All modules that were ever requested, in order."""
        self._broken: set[str] = set()
        self._started_in: Mapping[str, str] | None = None
        """The environment of this process when it started the server, until a launch has used that."""
        self._lacking: Mapping[str, str] | None = None
        """The environment for a base server, if a launch has lacked one."""

    def warm(self, environment: Mapping[str, str] | None = None, *, script: bool = False) -> None:
        """Starts to prepare for a first launch, by default of ranks with the environment of this process.

        Args:
            environment: That of the ranks.
            script: Whether the ranks run a script.
        """
        with self._lock:
            self._renew(os.environ if environment is None else environment, script=script)

    def preload(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """As in the contract; `environment` is that of the imports, by default that of this process."""
        if self._method == "spawn":
            return  # a fresh interpreter inherits nothing
        with self._lock:
            self._pending_modules += [name for name in modules if name not in self._all_modules]
            self._all_modules |= dict.fromkeys(modules)
            environment = os.environ if environment is None else environment
            self._confirm(environment)
            self._switch_to_next()
            self._request_successor(environment)

    def share(self, *, at_exit: bool = False) -> None:
        environment, self._lacking = self._lacking, None
        if environment is not None and at_exit:
            base_server.start(environment, detached=False)
        elif environment is not None:
            own_process.start_thread_if_allowed(partial(base_server.start, environment), "notebook-accel-share")

    def roots(self) -> list[int]:
        return [self.server.process.pid] if self.server is not None and self.server.process is not None else []

    def is_importing(self, modules: Collection[str]) -> bool:
        with self._lock:
            if self.next is None or set(modules).isdisjoint(self._next_modules):
                return False
            with contextlib.suppress(LaunchError):  # it has ended, which the launch will find
                return self.next.poll() is None
            return False

    def hand_over(self, successor: int, environment: Mapping[str, str]) -> Channel | None:
        if self._method != "fork":
            return None
        with self._lock, contextlib.suppress(OSError):
            return self._current(environment).successor((), os.environ, successor).detach_control()
        return None

    def take_over(self, control: Channel, environment: Mapping[str, str]) -> None:
        log = memory.open_log()  # lives as long as the server
        self.server = Server(control, log, load_time(environment))

    def _start(self, spec: RanksSpec, loop: EventLoop) -> Ranks:
        limits.raise_file_limit(4 * spec.size)
        own_end, server_end = pair()
        try:
            with self._lock:
                script = spec.streams is not Streams.CALLS
                server = self._open(spec.environments[0], server_end.fileno(), script=script)
        except BaseException:
            own_end.close()
            raise
        finally:
            server_end.close()
        return self._ranks(server, Channel(own_end), spec, loop)

    def _open(self, environment: Mapping[str, str], socket: int, *, script: bool) -> Server:
        """Has the server, or a new one if it was killed from outside, take requests for ranks at a socket.

        Raises:
            LaunchError: The new one has ended, too.
        """
        server = self._current(environment, script=script)
        if self._can_be_forked and not server.is_forked:
            self._lacking, self._started_in = self._started_in or self._lacking, None
        with contextlib.suppress(OSError):
            server.control.send({"op": "group"}, fds=[socket])
            return server
        self._discard()
        server = self._current(environment, script=script)
        try:
            server.control.send({"op": "group"}, fds=[socket])
        except OSError as error:
            raise LaunchError(server.why_it_ended(), engine_lost=True) from error
        return server

    def close(self) -> None:
        with self._lock:
            self._discard()

    def _discard(self) -> None:
        for server in (self._replaced, self.next, self.server):
            if server is not None:
                server.close()
        self._replaced = self.server = self.next = None
        self._pending_modules = [name for name in self._all_modules if name.partition(".")[0] not in self._broken]

    def _current(self, environment: Mapping[str, str], *, script: bool = False) -> Server:
        """The server to use for ranks with this environment."""
        self._renew(environment, script=script)
        return self._confirm(environment) or self._start_server(environment)

    def _renew(self, environment: Mapping[str, str], *, script: bool) -> None:
        """Has a server for ranks with this environment, which the base server may still refuse."""
        if self.server is not None and self.server.settings != load_time(environment):
            self.server.retire()  # its ranks keep running
            self.server = None
            self._discard()
        if self.server is not None:
            self._switch_to_next()
        if self.server is None and self._can_be_forked:
            self.server = Server.fork(environment, trained=not script)
            if self.server is not None and not script:
                self._all_modules |= dict.fromkeys(base_server.TRAINING)
                self._pending_modules = [name for name in self._pending_modules if name not in base_server.TRAINING]
        if self.server is None:
            self._start_server(environment)

    def _confirm(self, environment: Mapping[str, str]) -> Server | None:
        """Replaces a server that the base server has refused."""
        if self.server is not None and not self.server.is_granted():
            self._discard()
            self._start_server(environment)
        return self.server

    @property
    def _can_be_forked(self) -> bool:
        """Whether the base server can provide this engine's server."""
        return self._method == "fork" and not self._detached

    def _start_server(self, environment: Mapping[str, str]) -> Server:
        self._started_in = dict(os.environ)
        self.server = Server.start(self._method, environment, detached=self._detached)
        return self.server

    def _switch_to_next(self) -> None:
        """Makes the next server the current one if it is ready, and retires the one before."""
        if self._replaced is not None:
            self._replaced.retire()
            self._replaced = None
        if self.next is None:
            return
        try:
            report = self.next.poll()
        except LaunchError:
            if self.server is None or not self.server.is_alive():
                self._discard()  # it has ended together with the server
                return
            report = {"ready": False, "broken": self.next.importing}  # the import has ended it
        if report is None:
            return
        if report["ready"]:
            self._replaced, self.server, self.next = self.server, self.next, None
        else:
            self.next.close()
            self.next = None
            self._broken.add(str(report["broken"]))
            # Without a name, something other than an import has ended it, and may do so again.
            self._pending_modules = self._next_modules + self._pending_modules if report["broken"] else []

    def _request_successor(self, environment: Mapping[str, str]) -> None:
        """Requests a next server if modules are pending. Not while a launch starts: imports would slow it down."""
        self._pending_modules = [name for name in self._pending_modules if name.partition(".")[0] not in self._broken]
        if self._pending_modules and self.server is not None and self.next is None:
            try:
                self.next = self.server.successor(self._pending_modules, environment)
            except OSError:
                self._discard()
                return
            self._next_modules, self._pending_modules = self._pending_modules, []
