"""PROCESS: the base server, of which the fork servers of a user's kernels and scripts in one environment are forks.

    kernel ── request ──▶ base server ── request ──▶ its half with the training's modules
                                │ fork                      │ fork
                        keeper of a script's server   keeper of a kernel's server

It has imported torch, opens no device, and starts no thread. Its second half, a fork, has also imported what training
needs, which a script must not find imported: it may set variables before its own imports. A kernel's server is ready as
soon as it is forked, and shares its memory with those of other kernels. From then on, it depends on the kernel alone,
as if the kernel had started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from notebook_accel.errors import StreamError
from notebook_accel.launch.server import forking, keeper
from notebook_accel.launch.server.forking import ForkLoop
from notebook_accel.launch.server.imported import Imported
from notebook_accel.launch.server.main import ignore_requests_to_end, import_for, prepare, serve_prepared
from notebook_accel.launch.server.preloading import import_all, is_safe_to_fork
from notebook_accel.launch.system import inherited, limits, own_process
from notebook_accel.launch.system.network import credentials
from notebook_accel.launch.wire.stream import Channel, Message, close_all, pair

_PAUSE = 60.0
"""Seconds between two looks at the free memory."""
_LEAST_MEMORY = 2**29
"""Bytes of free memory below which it ends, which frees half as much."""
_MOST_WAITING = 64
_MOST_IDLE = 3
"""Base servers of an installation that stay without a kernel. Each login has one, for example: its control group."""


def main(fd: int, path: str, modules: Sequence[str], harmless: Sequence[str], idle: float) -> None:
    """The entry point of the process.

    Args:
        fd: A socket to the process that starts it, which neither side uses.
        path: The address for requests: a socket in a folder that is this user's alone.
        modules: What its second half imports in addition.
        harmless: The variables that may differ from those that imports have read.
        idle: Seconds without a kernel or a script after which it ends.
    """
    os.close(fd)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another one is being started
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    imported = Imported(harmless)
    with imported.recording():
        import_for("fork")
        _settle()
    if not is_safe_to_fork():
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    BaseServer(path, lock, imported, modules, idle).run()()


def _settle() -> None:
    """Prepares for forks, which share all of the memory."""
    prepare()
    for _ in forking.use_huge_pages(shared=True):
        pass


class _Half(ForkLoop):
    """Forks the servers of kernels, or of scripts."""

    def __init__(self, imported: Imported) -> None:
        super().__init__()
        self._imported = imported
        self._pause = _PAUSE

    def _serve(self) -> None:
        while True:
            self.run_once(self._pause)
            self._check()

    def _check(self) -> None:
        """Called after requests, and once in a while."""

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._on_end(pid)

    def _on_end(self, pid: int) -> None:
        """Called when a child has ended."""

    def _close_in_child(self) -> None:
        super()._close_in_child()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _fork(self, request: Mapping[str, Any], client: Channel, fds: Sequence[int]) -> None:
        """Forks a server, and tells the kernel, or why it does not."""
        why = self._imported.conflict(request["env"], request["path"])
        if not why:
            try:
                server = forking.fork(partial(_become_server, request, fds, client))
            except OSError as error:
                why = limits.explain_refusal(error)
        with contextlib.suppress(OSError):  # the kernel has ended
            if why:
                sys.stderr.write(f"process {request['kernel']} gets no fork: {why}\n")
                sys.stderr.flush()
                client.send({"refused": why})
            else:
                handle = os.pidfd_open(server)
                client.send({"server": server}, fds=[handle])
                os.close(handle)
        client.close()
        close_all(fds)
        if self._imported.is_outdated:
            os._exit(0)


def _become_server(request: Mapping[str, Any], fds: Sequence[int], client: Channel, parent: int) -> None:
    """Becomes the server of a kernel, in a fork: takes on what it would have inherited from the kernel."""
    client.close()
    control, log, folder = fds
    os.setsid()
    ignore_requests_to_end()
    own_process.set_environment(request["env"])
    forking.before_imports()
    inherited.take_on(request["state"], folder)
    os.close(folder)
    sys.path[:] = request["path"]
    sys.executable = request["executable"]
    importlib.invalidate_caches()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # Python's own generator does so itself
    for fd in (1, 2):
        os.dup2(log, fd)
    os.close(log)
    keeper.fork_server(request["kernel"])
    serve_prepared(Channel(socket.socket(fileno=control)), request["kernel"])


class _Trained(_Half):
    """The half that has imported what training needs. It ends with the other one."""

    def __init__(self, imported: Imported, requests: Channel) -> None:
        super().__init__(imported)
        self._requests = requests
        self.register(requests, self._on_requests)

    def _on_requests(self) -> None:
        messages = self._requests.receive(wait=False)
        if messages is None:
            os._exit(0)
        for message in messages:
            client, *fds = message.fds
            self._fork(message.header, Channel(socket.socket(fileno=client)), fds)

    def _close_in_child(self) -> None:
        super()._close_in_child()
        self._requests.close()


class BaseServer(_Half):
    """The half that takes requests. It forks the servers of scripts."""

    def __init__(
        self,
        path: str,
        lock: int,
        imported: Imported,
        modules: Sequence[str],
        idle: float,
    ) -> None:
        super().__init__(imported)
        self._path = path
        self._lock = lock
        self._modules = modules
        self._idle = idle
        self._pause = min(_PAUSE, idle)
        self._listener = socket.socket(socket.AF_UNIX)
        self._clients: dict[int, Channel] = {}
        """By descriptor: the connections whose request has not arrived."""
        self._kernels: dict[int, int] = {}
        """By process ID of a kernel or a script: a descriptor that is readable once it has ended."""
        self._last_used = 0.0
        self._began = time.time()
        self._trained: Channel | None = None
        self._trained_pid = 0

    def _serve(self) -> None:
        self._fork_trained()
        self._listener.bind(self._path)
        os.chmod(self._path, 0o600)
        self._listener.listen(_MOST_WAITING)
        self._listener.setblocking(False)
        self.register(self._listener, self._on_connection)
        self._last_used = time.monotonic()
        super()._serve()

    def _fork_trained(self) -> None:
        own, other = pair()
        self._trained_pid = forking.fork(partial(_become_trained, self._imported, other, self._modules), without=own)
        other.close()
        self._trained = Channel(own)
        # Kernels are to find both halves.
        if self._trained.receive(wait=True) is None:
            os._exit(0)

    def _end(self) -> None:
        """Ends. What has been forked continues."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        os._exit(0)

    def _check(self) -> None:
        if not self._kernels and (time.monotonic() - self._last_used >= self._idle or self._is_surplus()):
            self._end()
        if limits.free_memory() < _LEAST_MEMORY:
            self._end()

    def _is_surplus(self) -> bool:
        """Whether there are `_MOST_IDLE` others of the same installation that were used later."""
        own = Path(self._path)
        installation = own.name.partition("-")[0]
        with contextlib.suppress(OSError):  # one of them has just ended
            used = own.stat().st_mtime_ns
            others = [each for each in own.parent.glob(f"{installation}-*") if each.is_socket()]
            return sum(each.stat().st_mtime_ns > used and _is_listening(each) for each in others) >= _MOST_IDLE
        return False

    def _note_use(self) -> None:
        self._last_used = time.monotonic()
        with contextlib.suppress(OSError):
            os.utime(self._path)  # for the others

    def _on_end(self, pid: int) -> None:
        if pid == self._trained_pid:
            self._end()

    def _close_in_child(self) -> None:
        super()._close_in_child()
        self._listener.close()
        os.close(self._lock)
        for client in self._clients.values():
            client.close()
        for end in self._kernels.values():
            os.close(end)
        if self._trained is not None:
            self._trained.close()

    def _on_connection(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone
            return
        _, user = credentials(connection)
        if user != os.geteuid():
            connection.close()
            return
        client = Channel(connection)
        self._clients[client.fileno()] = client
        self.register(client, partial(self._on_client, client, connection))

    def _on_client(self, client: Channel, connection: socket.socket) -> None:
        try:
            messages = client.receive(wait=False)
        except StreamError:
            messages = None
        if messages == []:
            return
        self.unregister(client)
        del self._clients[client.fileno()]
        if messages is None:
            client.close()
        else:
            self._answer(messages[0], client, credentials(connection)[0])

    def _answer(self, message: Message, client: Channel, pid: int) -> None:
        match message.header.get("op"):
            case "fork":
                self._start({**message.header, "kernel": pid}, client, message.fds)
            case "status":
                kernels = list(self._kernels)
                client.send({"pid": os.getpid(), "prefix": sys.prefix, "began": self._began, "kernels": kernels})
                client.close()
            case "stop":
                client.send({})
                self._end()
            case _:
                close_all(message.fds)
                client.close()

    def _start(self, request: Mapping[str, Any], client: Channel, fds: Sequence[int]) -> None:
        self._note_use()
        if request["kernel"] not in self._kernels and (end := own_process.watch(request["kernel"])) is not None:
            self._kernels[request["kernel"]] = end
            self.register(end, partial(self._on_end_of_kernel, request["kernel"]))
        if not request["trained"]:
            self._fork(request, client, fds)
            return
        assert self._trained is not None
        with contextlib.suppress(OSError):  # it has just ended, and with it this process will
            self._trained.send(request, fds=[client.fileno(), *fds])
        client.close()
        close_all(fds)

    def _on_end_of_kernel(self, kernel: int) -> None:
        end = self._kernels.pop(kernel)
        self.unregister(end)
        os.close(end)
        self._note_use()


def _is_listening(address: Path) -> bool:
    """Whether the process that made this socket lives."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(address))
        except OSError as error:
            return isinstance(error, BlockingIOError)  # its queue is full
    return True


def _become_trained(imported: Imported, requests: socket.socket, modules: Sequence[str], parent: int) -> None:
    own_process.die_with_parent(parent)
    channel = Channel(requests)
    with imported.recording():
        broken = import_all(modules, lambda _: None)
        _settle()
    if broken is None:
        half = _Trained(imported, channel)
        channel.send({"ready": True})
        half.run()()
