"""The engine that starts ranks through a server: starts it, keeps it warm, replaces it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence

from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.contract import GroupSpec
from notebook_accel.launch.engines.server_connection import Server, load_time
from notebook_accel.launch.engines.server_ranks import ServerRanks
from notebook_accel.launch.system import descriptors
from notebook_accel.launch.wire.stream import Channel, pair


class ServerEngine:
    """Starts ranks through a server: by fork from a warm one, or by spawn from one that only starts processes."""

    isolated = True
    max_ranks: int | None = None

    def __init__(self, method: str, *, detached: bool = False) -> None:
        self.name = {"fork": "forkserver", "spawn": "spawn", "xla": "xla"}[method]
        self._method = method
        self._detached = detached
        """The server is nobody's child, so that who ends this process and its children leaves it to end the ranks."""
        self._lock = threading.RLock()
        self._server: Server | None = None
        self._next: Server | None = None
        self._replaced: Server | None = None
        """What the server has taken over from: it is let go after the launch that was the first to find it ready."""
        self._preloaded: list[str] = []
        """What the next server imports, beside what the current one has."""
        self._wanted: list[str] = []
        self._known: dict[str, None] = {}
        """All that was ever wanted, in order."""
        self._broken: set[str] = set()

    def warm(self, environment: Mapping[str, str] | None = None) -> None:
        """Begins to prepare for a first start, by default of ranks with the environment of this process."""
        with self._lock:
            self._current(os.environ if environment is None else environment)

    def preload(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """As in the contract; `environment` is what the imports see, by default that of this process."""
        if self._method == "spawn":
            return  # a fresh interpreter inherits nothing
        with self._lock:
            self._wanted += [name for name in modules if name not in self._known]
            self._known |= dict.fromkeys(modules)
            self._take_over()
            self._ask(os.environ if environment is None else environment)

    def hand_over(self, successor: int, environment: Mapping[str, str]) -> Channel | None:
        if self._method != "fork":
            return None
        with self._lock, contextlib.suppress(OSError):
            return self._current(environment).successor((), os.environ, successor).give_away()
        return None

    def take_over(self, control: Channel, environment: Mapping[str, str]) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the server
        self._server = Server(control, log, load_time(environment))

    def start(self, spec: GroupSpec) -> ServerRanks:
        return ServerRanks(*self._open(spec), spec)

    def _open(self, spec: GroupSpec) -> tuple[Server, Channel]:
        """Opens a group on the server, for ranks with this environment."""
        descriptors.raise_limit(4 * spec.size)
        with self._lock:
            server = self._current(spec.environments[0])
            ours, theirs = pair()
            try:
                try:
                    server.control.send({"op": "group"}, fds=[theirs.fileno()])
                except OSError:
                    # It was ended from outside; a new one serves as well.
                    self._discard()
                    server = self._current(spec.environments[0])
                    server.control.send({"op": "group"}, fds=[theirs.fileno()])
            finally:
                theirs.close()
        return server, Channel(ours)

    def close(self) -> None:
        with self._lock:
            self._discard()

    def _discard(self) -> None:
        for server in (self._replaced, self._next, self._server):
            if server is not None:
                server.close()
        self._replaced = self._server = self._next = None
        self._wanted = [name for name in self._known if name.partition(".")[0] not in self._broken]

    def _current(self, environment: Mapping[str, str]) -> Server:
        """The server to use for ranks with this environment."""
        if self._server is not None and self._server.settings != load_time(environment):
            self._server.retire()  # its groups go on
            self._server = None
            self._discard()
        if self._server is not None:
            self._take_over()
        if self._server is None:
            self._server = Server.start(self._method, environment, detached=self._detached)
        return self._server

    def _take_over(self) -> None:
        """Lets the next server take over once it is ready."""
        if self._replaced is not None:
            self._replaced.retire()
            self._replaced = None
        if self._next is None:
            return
        try:
            news = self._next.news()
        except LaunchError:
            if self._server is None or not self._server.is_alive():
                self._discard()  # it went with the server
                return
            news = {"ready": False, "broken": self._next.importing}  # the import has ended it
        if news is None:
            return
        if news["ready"]:
            self._replaced, self._server, self._next = self._server, self._next, None
        else:
            self._next.close()
            self._next = None
            self._broken.add(str(news["broken"]))
            # Without a name, something else has ended it, and may do so again.
            self._wanted = self._preloaded + self._wanted if news["broken"] else []

    def _ask(self, environment: Mapping[str, str]) -> None:
        """Asks for a next server if more is wanted. Not while a launch begins, which it would slow down."""
        self._wanted = [name for name in self._wanted if name.partition(".")[0] not in self._broken]
        if self._wanted and self._server is not None and self._next is None:
            try:
                self._next = self._server.successor(self._wanted, environment)
            except OSError:
                self._discard()
                return
            self._preloaded, self._wanted = self._wanted, []
