"""The driver's side of the base server: finds it, requests a fork of it, and starts one for the launches to come.

There is one for each user, environment, and way to run (control group, limits, and variables, among others); these
make its address. A driver that finds none starts a fork server of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.load_time import HARMLESS, at_start
from notebook_accel.launch.system import inherited, memory, processes
from notebook_accel.launch.system.network import credentials
from notebook_accel.launch.wire.constants import RANK_MARK
from notebook_accel.launch.wire.stream import Channel, Message, close_all, is_readable, pair
from notebook_accel.rank_spans import counted

VARIABLE = "NOTEBOOK_ACCEL_SHARED_SERVER"
"""`0` in the environment turns it off."""
IDLE = 3600.0
"""Seconds without a kernel or a script after which it ends."""
TRAINING = (
    "torch._dynamo",  # imported by the first optimizer of a process, which takes two seconds
    "notebook_accel.train.accelerator.accelerator",
    "notebook_accel.train.strategies.ddp",
    "notebook_accel.train.strategies.mesh_parallel",
    "notebook_accel.train.checkpoints.layouts.sharded",
    "notebook_accel.train.strategies.ddp_recovery",
    "notebook_accel.notebook.cells.on_rank.worker",
    "notebook_accel.notebook.cells.on_rank.shell",
    "IPython.core.magics",  # imported by the first shell of a process
)
"""Modules that every training rank imports sooner or later, even if this process has not."""
_ENTRY = "notebook_accel.launch.server.base:main"
_TIMEOUT = 20.0
"""Seconds that it has to answer. It takes milliseconds, and on a busy machine less than the imports that it saves."""
_LOOK = 0.2
"""Seconds between two looks whether it has been stopped (SIGSTOP), and won't answer."""
_UNREAD = ("TERM",)
"""Variables that its imports read for terminals, which ranks have none of."""


class Keeper:
    """The keeper of a server that the base server has forked, as far as a child of this process would be used."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle
        weakref.finalize(self, os.close, handle)

    def send_signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signum)


class Request:
    """A request for a fork, until it is answered."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def answer(self) -> Keeper | None:
        """Waits for the answer; `None` if there will be no fork, so that the driver needs a server of its own."""
        with contextlib.closing(self._channel):
            message = _receive(self._channel)
            return None if message is None or not message.fds else Keeper(message.header["server"], message.fds[0])


def request(environment: Mapping[str, str], control: socket.socket, log: IO[bytes], *, trained: bool) -> Request | None:
    """Requests a fork that becomes this process's server. Does not wait. `None` if there is no base server.

    Args:
        environment: That of the server.
        control: The server's end of the control socket.
        log: The file for its output.
        trained: Whether it is to have imported `TRAINING`.
    """
    channel = _connect(_address(environment)) if _is_on(environment) else None
    if channel is None:
        return None
    header = {
        "op": "fork",
        "trained": trained,
        "env": dict(environment),
        "path": processes.search_path(),
        "executable": sys.executable,
        "state": inherited.adjustable(),
    }
    try:
        folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            channel.send(header, fds=[control.fileno(), log.fileno(), folder])
        finally:
            os.close(folder)
    except OSError:
        channel.close()
        return None
    return Request(channel)


def start(environment: Mapping[str, str], *, detached: bool = True, idle: float = IDLE) -> bool:
    """Starts the base server for later drivers, unless there is one. Returns whether it has.

    Args:
        environment: That of the drivers.
        detached: Whether it is to outlive this process; otherwise, it is an orphan only once this process has ended.
        idle: Seconds without a kernel or a script after which it ends.
    """
    if not _is_on(environment):
        return False
    address = _address(environment)
    try:
        _make_folder(address.parent)
        if is_started(address):
            return False
        unused, other = pair()
        arguments = [str(address), TRAINING, [*HARMLESS, *_UNREAD], idle]
        with unused, memory.open_log() as log:
            child = processes.start(_ENTRY, other, log, *arguments, environment=environment, detached=detached)
    except (OSError, LaunchError):
        return False
    if detached:
        child.wait()  # it has forked the base server, and ends at once
    with contextlib.suppress(OSError):
        _mark().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _mark().touch(mode=0o600)
    return True


def start_again() -> None:
    """Starts the base server before anything is launched, if this installation has launched something before."""
    if _mark().exists():
        start(os.environ)


def running() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The address of each base server of this user, and what it says about itself."""
    for address in _addresses():
        answer = _ask(address, "status")
        if answer is not None:
            yield address, answer


def of_this_process() -> dict[str, Any] | None:
    """What the base server that this process uses, or would use, says about itself; `None` if there is none."""
    return _ask(_address(os.environ), "status") if _is_on(os.environ) else None


def describe(status: Mapping[str, Any]) -> str:
    """A base server in words, with its environment if that is not this process's."""
    count = len(status["kernels"])
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(status["began"]))
    where = "" if status["prefix"] == sys.prefix else f" of {status['prefix']}"
    return (
        f"base server{where} (process {status['pid']}), since {began}: used by "
        f"{counted(count, 'kernel') if count else 'no kernels'} and scripts now"
    )


def stop(prefix: str | None = None) -> int:
    """Ends this user's base servers, or those of the environment there; returns how many. Their forks continue."""
    found = (address for address, status in running() if prefix in (None, status["prefix"]))
    return sum(_ask(address, "stop") is not None for address in found)


def _is_on(environment: Mapping[str, str]) -> bool:
    # What a rank starts is to end with the rank.
    on = sys.platform == "linux" and environment.get(VARIABLE) != "0" and RANK_MARK not in environment
    return on and bool(sys.executable)


def _address(environment: Mapping[str, str]) -> Path:
    """The address of the base server whose forks are like processes that this one starts."""
    installation, like_this = _digest(_installation()), _digest([at_start(environment), inherited.fixed()])
    return _folder() / f"{installation[:8]}-{like_this}"


def _installation() -> list[str]:
    """The installation of Python and of this package."""
    return [processes.HOME, os.path.realpath(sys.executable), sys.prefix]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:24]


def _mark() -> Path:
    """A file that exists once a launch of this installation has lacked a base server."""
    from notebook_accel.launch.journal import records  # here, since to find a base server does not need it

    return records.folder().parent / "base-servers" / _digest(_installation())


def _folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp", f"notebook-accel-{os.geteuid()}")


def _make_folder(folder: Path) -> None:
    """Makes the folder, which is this user's alone.

    Raises:
        OSError: It can't be made, or belongs to another user.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _check_folder(folder)


def _check_folder(folder: Path) -> None:
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{folder} is not this user's alone")


def _addresses() -> Sequence[Path]:
    try:
        return [each for each in sorted(_folder().iterdir()) if each.is_socket()]
    except OSError:
        return []


def is_started(address: Path) -> bool:
    """Whether there is one, which may still be importing."""
    lock = os.open(f"{address}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _connect(address: Path) -> Channel | None:
    """A connection to a base server; `None` if there is none that is this user's."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        _check_folder(address.parent)
        connection.setblocking(False)  # its queue may be full
        connection.connect(str(address))
        connection.setblocking(True)
        if credentials(connection)[1] == os.geteuid():
            return Channel(connection)
    except OSError:
        pass
    connection.close()
    return None


def _ask(address: Path, operation: str) -> dict[str, Any] | None:
    channel = _connect(address)
    if channel is None:
        return None
    with contextlib.closing(channel), contextlib.suppress(OSError):
        channel.send({"op": operation})
        message = _receive(channel)
        if message is not None:
            close_all(message.fds)
            return message.header
    return None


def _is_stopped(channel: Channel) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(channel.fileno())) as connection:
        return Path(f"/proc/{credentials(connection)[0]}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    return True


def _receive(channel: Channel) -> Message | None:
    """The answer of a base server; `None` if there is none in time."""
    deadline = time.monotonic() + _TIMEOUT
    while not is_readable(channel, _LOOK):
        if time.monotonic() > deadline or _is_stopped(channel):
            return None
    return next(iter(channel.receive(wait=False) or ()), None)
