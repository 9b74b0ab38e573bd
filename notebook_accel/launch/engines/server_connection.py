"""The driver's connection to one fork server process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines import base_server
from notebook_accel.launch.engines.load_time import load_time
from notebook_accel.launch.system import memory, own_process, processes
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.wire.stream import Channel, pair

_ENTRY = "notebook_accel.launch.server.main:main"
_WHAT = "the process that starts the ranks"
_reaped: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
"""The children for which a thread waits."""


class Server:
    """One server process: started by this one, or forked from another server as its successor."""

    def __init__(self, control: Channel, log: IO[bytes], settings: Mapping[str, str]) -> None:
        self.control = control
        self.settings = settings
        self.importing = ""
        """The package whose import it has announced last."""
        self._report: dict[str, object] | None = None
        self._log = log
        self._request: base_server.Request | None = None
        """The request for it, until the base server has answered."""
        self.process: subprocess.Popen[bytes] | base_server.Keeper | None = None
        """The parent of the server, and of all that came before it."""

    @classmethod
    def start(cls, method: str, environment: Mapping[str, str], *, detached: bool = False) -> Server:
        """Starts a server, which imports what its ranks need."""
        own_end, server_end = pair()
        log = memory.open_log()  # lives as long as the server
        server = cls(Channel(own_end), log, load_time(environment))
        try:
            server.process = processes.start(
                _ENTRY, server_end, log, method, os.getpid(), environment=environment, detached=detached
            )
        except BaseException as error:
            server.close()
            if isinstance(error, OSError):
                raise LaunchError(f"{_WHAT} can't be started: {explain_refusal(error)}") from error
            raise
        return server

    @classmethod
    def fork(cls, environment: Mapping[str, str], *, trained: bool) -> Server | None:
        """Requests a server of the base server, without waiting; `None` if there is none."""
        own_end, server_end = pair()
        log = memory.open_log()
        server = cls(Channel(own_end), log, load_time(environment))
        with server_end:
            server._request = base_server.request(environment, server_end, log, trained=trained)
        if server._request is None:
            server.close()
            return None
        return server

    def is_granted(self) -> bool:
        """Whether there is a server: the base server may refuse one, and then another must be started."""
        request, self._request = self._request, None
        if request is not None:
            self.process = request.answer()
        return request is None or self.process is not None

    @property
    def is_forked(self) -> bool:
        """Whether it comes from the base server."""
        return self._request is not None or isinstance(self.process, base_server.Keeper)

    def successor(self, modules: Sequence[str], environment: Mapping[str, str], kernel: int | None = None) -> Server:
        """Requests a fork of this server that imports more modules; `poll` returns whether it is ready.

        Args:
            modules: The modules to import.
            environment: The environment of the imports.
            kernel: The process with which it ends; by default this one.
        """
        own_end, server_end = pair()
        request = {
            "op": "preload",
            "modules": list(modules),
            "env": dict(environment),
            "kernel": os.getpid() if kernel is None else kernel,
        }
        try:
            self.control.send(request, fds=[server_end.fileno()])
        except OSError:
            own_end.close()
            raise
        finally:
            server_end.close()
        found = Server(Channel(own_end), os.fdopen(os.dup(self._log.fileno()), "rb"), self.settings)
        found.process = self.process
        return found

    def detach_control(self) -> Channel:
        """Returns the control socket, which another process will own."""
        self._log.close()
        return self.control

    def poll(self) -> dict[str, object] | None:
        """The server's report whether it is ready; `None` while there is none.

        Raises:
            LaunchError: The server has ended instead.
        """
        while self._report is None and self.control.has_data():
            messages = self.control.receive(wait=False)
            if messages is None:
                raise LaunchError(self.why_it_ended(), engine_lost=True)
            for message in messages:
                if "importing" in message.header:
                    self.importing = message.header["importing"]
                else:
                    self._report = message.header
        return self._report

    def is_alive(self) -> bool:
        """Whether the control socket is still open at the other end."""
        while self.control.has_data():
            if self.control.receive(wait=False) is None:
                return False
        return self.control.is_open

    def wake(self) -> None:
        """Has the server continue if it was stopped (SIGSTOP), and do what it was asked since then."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def why_it_ended(self) -> str:
        """Why it has ended, according to its log."""
        return processes.why_it_ended(_WHAT, self._log)

    def retire(self) -> None:
        """Lets the server end once its ranks have."""
        with contextlib.suppress(OSError):
            self.control.send({"op": "retire"})
        self.close()

    def close(self) -> None:
        """Ends the server and its ranks now; if it is retired, once its ranks have ended."""
        self.control.close()
        self._log.close()
        self.wake()
        if isinstance(self.process, subprocess.Popen):
            _reap_later(self.process)


def _reap_later(child: subprocess.Popen[bytes]) -> None:
    """Waits for a child on a thread, so that it does not stay a zombie."""
    if child not in _reaped:
        _reaped.add(child)
        own_process.start_thread_if_allowed(child.wait, "notebook-accel-reaper")  # without one, it stays a zombie
