"""The engine whose ranks live on the machines of a cluster: starts the bridge, and asks it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from notebook_accel import errors
from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.contract import GroupSpec, Machine
from notebook_accel.launch.engines.server_ranks import ServerRanks
from notebook_accel.launch.show import front_end
from notebook_accel.launch.system import descriptors, installed, processes
from notebook_accel.launch.wire.constants import DESCRIPTORS
from notebook_accel.launch.wire.stream import Channel, pair

_ENTRY = "notebook_accel.launch.cluster.bridge.main:main"
_WHAT = "the process that reaches the cluster"
NAME = "cluster"
_PATIENCE = (15.0, 30.0, 60.0)
"""Seconds for each attempt to join a cluster that may be stuck."""
_FRESH = 30.0
"""Seconds for which a survey counts."""


class ClusterEngine:
    """Starts ranks on machines of one cluster.

    Args:
        address: The cluster's.
        insecure: It may be one that asks nobody for a token.
    """

    name = NAME
    isolated = True
    max_ranks: int | None = None

    def __init__(self, address: str, *, insecure: bool = False) -> None:
        self.address = address
        self._insecure = insecure
        self._lock = threading.RLock()
        self._bridge: _Bridge | None = None
        self._surveyed: tuple[float, list[Machine]] = (0.0, [])
        self._modules: dict[str, None] = {}
        """What ranks are to find imported, in order."""

    def warm(self) -> None:
        with self._lock:
            self._current()

    def preload(self, modules: Sequence[str]) -> None:
        with self._lock:
            new = [name for name in modules if name not in self._modules]
            self._modules |= dict.fromkeys(new)
            if self._bridge is not None and new:
                self._bridge.preload(new)

    def hand_over(self, successor: int, environment: Mapping[str, str]) -> None:
        pass  # a process has machines of its own

    def take_over(self, control: Channel, environment: Mapping[str, str]) -> None:
        raise NotImplementedError

    def survey(self, least: int = 1) -> list[Machine]:
        """The machines of the cluster, as they were within the last half minute; fewer than `least` are as of now.

        Raises:
            LaunchError: It can't be reached.
        """
        at, found = self._surveyed
        if len(found) < least or time.monotonic() - at > _FRESH:
            found = self._survey()
            self._surveyed = time.monotonic(), found
        return found

    def _survey(self) -> list[Machine]:
        *first, last = _PATIENCE
        for patience in first:
            answer = self._ask(patience)
            if not answer.get("again"):
                break
            front_end.current.notice(f"{answer['error']}\nTrying once more, for longer.")
        else:
            answer = self._ask(last)
        if "error" in answer:
            raise LaunchError(answer["error"])
        return [Machine(**each) for each in answer["machines"]]

    def _ask(self, patience: float) -> dict[str, Any]:
        """What the bridge says of the cluster, or why it can't; another one is to be asked then."""
        ours, theirs = pair()
        with contextlib.closing(Channel(ours)) as answer:
            with theirs:
                bridge = self._say({"op": "survey", "patience": patience}, [theirs.fileno()])
            # Waits on a socket, not in the cluster's library: an interrupt is heard, and harms nothing.
            found = next((message.header for message in answer.receive(wait=True) or ()), None)
        if found is None or "error" in found:
            found = found or {"error": bridge.why_it_ended()}
            self.close()  # the next one reads the environment anew
        return found

    def start(self, spec: GroupSpec) -> ServerRanks:
        self.survey()  # joins the cluster, if that has not been done
        descriptors.raise_limit(DESCRIPTORS * spec.size)  # the bridge needs as many, and has this process's hard limit
        ours, theirs = pair()
        with theirs:
            self._say({"op": "environment", "env": dict(spec.environments[0])})
            bridge = self._say({"op": "group"}, [theirs.fileno()])
        return _ClusterRanks(bridge, Channel(ours), spec)

    def close(self) -> None:
        with self._lock:
            if self._bridge is not None:
                self._bridge.close()
            self._bridge = None
            self._surveyed = 0.0, []

    def _say(self, header: Mapping[str, Any], fds: Sequence[int] = ()) -> _Bridge:
        with self._lock:
            bridge = self._current()
            try:
                bridge.control.send(header, fds=fds)
            except OSError:
                # It was ended from outside; a new one serves as well.
                self.close()
                bridge = self._current()
                bridge.control.send(header, fds=fds)
            return bridge

    def _current(self) -> _Bridge:
        if self._bridge is None:
            self._bridge = _Bridge(self.address, self._insecure)
            self._bridge.preload(list(self._modules))
        return self._bridge


class _Bridge:
    """The kernel's hold on the bridge."""

    def __init__(self, address: str, insecure: bool) -> None:
        ours, theirs = pair()
        self.control = Channel(ours)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the bridge
        try:
            self._process: subprocess.Popen[bytes] = processes.start(
                _ENTRY, theirs, self._log, address, insecure, os.getpid()
            )
        except OSError as error:
            self.control.close()
            raise LaunchError(f"{_WHAT} can't be started: {error}") from error

    def preload(self, modules: Sequence[str]) -> None:
        """Tells what the machines' servers are to import while they are idle."""
        with contextlib.suppress(OSError):  # it has ended, which the next launch will find
            self.control.send({"op": "preload", "modules": list(modules), "env": shared_environment(os.environ)})

    def why_it_ended(self) -> str:
        """Why it has ended, as far as it has said."""
        return processes.why_it_ended(_WHAT, self._log)

    def close(self) -> None:
        """Ends it, and all that it has started."""
        self.control.close()
        self._log.close()
        threading.Thread(target=self._process.wait, name="notebook-accel-reaper", daemon=True).start()


class _ClusterRanks(ServerRanks):
    """One group on a cluster: to the kernel, like any other on a server."""

    def _meet(self, spec: GroupSpec) -> None:
        assert spec.machines is not None
        order = {
            "op": "meet",
            "size": spec.size,
            "machines": vars(spec.machines),
            "folders": own(os.getcwd(), sys.path),
        }
        self._group.send(order)


def own(cwd: str, path: Sequence[str]) -> list[str]:
    """The folders that are the user's own: the working one, and those of the search path that hold no packages."""
    others = tuple(os.path.join(each, "") for each in (os.path.expanduser("~/.ipython"), _home()))
    found = [cwd]
    for folder in path:
        ended = os.path.join(folder, "")
        exists = os.path.isabs(folder) and os.path.isdir(folder)
        if exists and not (installed.is_installed(ended) or ended.startswith(others)):
            found.append(folder)
    return list(dict.fromkeys(found))


def _home() -> str:
    """Where this package is imported from, which every machine has its own of."""
    return os.path.dirname(os.path.dirname(os.path.abspath(errors.__file__)))


_OF_A_MACHINE = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "HOME",
        "HOST",
        "HOSTNAME",
        "LOGNAME",
        "MAIL",
        "OLDPWD",
        "PATH",
        "PWD",
        "SHELL",
        "SHLVL",
        "TEMP",
        "TERM",
        "TMP",
        "TMPDIR",
        "USER",
        "USERNAME",
        "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT",
    ]
)
_OF_A_MACHINE_BEGIN = ("CONDA_", "JPY_", "LD_", "PYTHONHOME", "PYTHONPATH", "RAY_", "SLURM_", "SSH_", "XDG_", "_")


def shared_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What of the notebook's environment is not of its machine alone."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _OF_A_MACHINE and not name.startswith(_OF_A_MACHINE_BEGIN)
    }
