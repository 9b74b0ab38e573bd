"""Two machines that are none, each with a Ray node: namespaces with a cable between them, and a token."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.hosts.host import Host
from tests.live_notebook import Notebook

NAMES = ("first", "second")
_ADDRESSES = ("10.98.0.1", "10.98.0.2")
_PORT = 6379
_PATIENCE = 110
"""Seconds for Ray to start, on a machine with other work."""


class Machines:
    """On the first is Ray's head. They share files, but for Ray's.

    Args:
        home: An empty folder with a short name, under which each sees a file system of its own.
    """

    address = f"{_ADDRESSES[0]}:{_PORT}"
    setting = f"%accelerate --cluster {address} --nodes 2 -n 4 --device cpu"

    def __init__(self, home: Path) -> None:
        self._home = home
        self.token = secrets.token_hex(32)
        """What a kernel has to know."""
        self._own = {"RAY_TMPDIR": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}
        self.hosts: list[Host] = []
        self._joined = False
        try:
            for name in NAMES:
                self.hosts.append(Host(name))
            self.hosts[0].join(self.hosts[1])
            for host, other in zip(self.hosts, reversed(_ADDRESSES), strict=True):
                # Ray finds out its own address by asking for the way to the world.
                self._do(host, "ip", "route", "add", "default", "via", other)
                self._do(host, "mount", "-t", "tmpfs", "ray", str(home))
            self._start(0)
            self.join()
        except BaseException:
            self.close()
            raise

    def join(self) -> None:
        """Has the second machine join the first, if it is not there."""
        if not self._joined:
            self._start(1)
            self._joined = True

    def crash_second(self) -> None:
        """Ends all that runs there; its network still answers."""
        self._joined = False
        self.hosts[1].crash()

    def pull_cable(self) -> None:
        """Nothing that either says reaches the other."""
        for host in self.hosts:
            host.mute()

    def plug_cable(self) -> None:
        for host in self.hosts:
            host.unmute()

    def _start(self, index: int) -> None:
        command = [sys.executable, "-m", f"{__package__}.node", _ADDRESSES[index], self.address]
        self._do(self.hosts[index], *command)

    def _do(self, host: Host, *command: str) -> None:
        process = host.start(*command, environ=_with(self._own | {"RAY_USAGE_STATS_ENABLED": "0"}))
        said, _ = process.communicate(timeout=_PATIENCE)
        assert process.returncode == 0, said

    def kernel_on(self, index: int, folder: Path) -> dict[str, Any]:
        """What a `Notebook` takes whose kernel runs there."""
        # An interrupt goes to the kernel's process group: what brings it there is to outlive that.
        wrapper = ["env", "--ignore-signal=INT", *self.hosts[index].inside(folder), "env", "--default-signal=INT"]
        return {"cwd": folder, "wrapper": wrapper, "env": {**_NOT_LOOPBACK, **self._own}}

    def close(self) -> None:
        for host in self.hosts:
            host.close()


_NOT_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": None}
"""Removes what other tests have set."""


def _with(changes: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_LOOPBACK} | changes


def kernel_of(notebook: Notebook) -> int:
    """The process of the kernel itself, as seen from outside."""
    (found,) = psutil.Process(notebook.pid).children()
    return found.pid


def ranks_of(notebook: Notebook) -> list[int]:
    """All that its launches have started, on both machines."""
    return [process.pid for process in notebook.launched() if process.pid != kernel_of(notebook)]
