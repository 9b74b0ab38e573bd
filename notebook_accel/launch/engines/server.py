"""The process that starts ranks: a child of the kernel that is never anything but clean.

    kernel ── control ──▶ server ──▶ store process
      │  ╲─── group ────▶   │  fork, or spawn
      ╰── channel, pipes ─▶ ranks

On the control socket the kernel opens groups, and asks for a successor that has more modules imported. Each group has a
socket of its own, on which the kernel starts and signals ranks and learns how they ended. When the kernel goes, or
closes
a group, the ranks are killed. The server imports torch, touches no device and starts no thread, so a fork of it is
safe.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.launch import rank_process
from notebook_accel.launch.engines import children, forking
from notebook_accel.launch.engines import store as store_module
from notebook_accel.launch.engines.children import adopt_orphans
from notebook_accel.launch.engines.preloading import import_all
from notebook_accel.launch.processes import spawn
from notebook_accel.launch.rank_process import RankStart
from notebook_accel.launch.stream import Channel, Message, pair

PRELOADED = ("torch", "torch.distributed", "numpy", "cloudpickle", "tqdm", "threadpoolctl")
_QUIET = 0.02
"""Seconds without a group or a request before the server sees to its own affairs."""
_MAX_SPARES = 8


@dataclass
class _Group:
    number: int
    channel: Channel
    pids: dict[int, int] = field(default_factory=dict)
    """Process of each rank that has not been reaped."""
    waiting: list[Message] = field(default_factory=list)
    """Ranks to start once the machines have met."""
    met: bool = False
    parted: bool = False
    """All ranks have said their last word, and end by themselves within moments."""
    closed: bool = False


class Server:
    """The loop. `run` returns only in a process that has become something else."""

    def __init__(self, method: str, control: Channel, kernel: int) -> None:
        self._method = method
        self._control = control
        self._kernel = kernel
        self._groups: dict[int, _Group] = {}
        self._opened = 0
        self._retired = False
        self._inbox: deque[Message] = deque()
        self._spares: dict[int, Channel] = {}
        """Forks that wait to become ranks, by process: a launch then need not wait for forks."""
        self._spare_goal = 2
        self._pages: Iterator[None] | None = forking.use_huge_pages()
        self._become: Callable[[], None] | None = None
        self._store: Channel | None = None
        self._kept: set[int] = set()
        """Children that outlive the groups: the store's process, and the server's successor."""
        self._selector = selectors.DefaultSelector()
        self._wakeup = pair()

    def run(self) -> Callable[[], None]:
        """Serves; returns what to be, in a child that is to be a rank, a store or the next server."""
        self._listen()
        quiet = _QUIET
        while True:
            chore = self._chore()
            ready = self._selector.select(None if chore is None else quiet)
            for key, _ in ready:
                key.data()
                if self._become is not None:
                    break
            if chore is not None and not ready:
                chore()
            quiet = _QUIET if ready else 0.0
            if self._become is not None:
                self._forget_everything()
                return self._become
            if self._retired and not self._groups:
                os._exit(0)

    def _chore(self) -> Callable[[], None] | None:
        """What to do next to be ready for a launch, in steps of milliseconds, while nobody asks for anything."""
        if self._method == "spawn" or self._groups or self._retired:
            return None
        if self._pages is not None:
            return self._take_page
        if self._store is None:
            return self._start_store
        return self._add_spare if len(self._spares) < self._spare_goal else None

    def _take_page(self) -> None:
        assert self._pages is not None
        if next(self._pages, self) is self:
            self._pages = None

    def _listen(self) -> None:
        for end in self._wakeup:
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup[1].fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._on_child)
        self._selector.register(self._control, selectors.EVENT_READ, self._on_control)
        if hasattr(os, "pidfd_open"):
            # A process that the kernel has forked may hold the other end of our socket open after the kernel is gone.
            with contextlib.suppress(OSError):
                self._selector.register(os.pidfd_open(self._kernel), selectors.EVENT_READ, self._end)

    def _forget_everything(self) -> None:
        """Closes, in a child, what belongs to the server alone."""
        signal.set_wakeup_fd(-1)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        for end in self._wakeup:
            end.close()
        for message in (*self._inbox, *(late for group in self._groups.values() for late in group.waiting)):
            _close_all(message.fds)
        groups = (group.channel for group in self._groups.values())
        for channel in (self._control, self._store, *groups, *self._spares.values()):
            if channel is not None:
                channel.close()

    def _end(self) -> None:
        """The kernel is gone: so is everything that it started."""
        for group in self._groups.values():
            self._kill(group)
        self._sweep()
        os._exit(0)

    def _handle(self, messages: list[Message], handle: Callable[[Message], None]) -> None:
        self._inbox.extend(messages)
        while self._inbox and self._become is None:
            handle(self._inbox.popleft())

    # What the kernel says

    def _on_control(self) -> None:
        messages = self._control.receive(wait=False)
        if messages is not None:
            self._handle(messages, self._on_control_message)
        elif self._retired:
            self._selector.unregister(self._control)
            self._control.close()
        else:
            self._end()

    def _on_control_message(self, message: Message) -> None:
        operation = message.header["op"]
        if operation == "group":
            self._open(message.fds[0])
        elif operation == "preload":
            self._preload(message.header["modules"], message.header["env"], message.fds[0])
        elif operation == "retire":
            self._retired = True

    def _open(self, fd: int) -> None:
        self._opened += 1
        group = _Group(self._opened, Channel(socket.socket(fileno=fd)))
        self._groups[group.number] = group
        self._selector.register(group.channel, selectors.EVENT_READ, lambda: self._on_group(group))
        if self._store is None:
            self._start_store()

    def _on_group(self, group: _Group) -> None:
        messages = group.channel.receive(wait=False)
        if messages is None:
            self._close(group)
        else:
            self._handle(messages, lambda message: self._on_group_message(group, message))

    def _on_group_message(self, group: _Group, message: Message) -> None:
        operation = message.header["op"]
        if operation == "meet":
            self._meet(group, message)
        elif operation == "rank" and group.met:
            self._start(group, message)
        elif operation == "rank":
            group.waiting.append(message)
        elif operation == "signal":
            self._signal(group, message.header["rank"], message.header["signum"])
        elif operation == "part":
            group.parted = True

    def _close(self, group: _Group) -> None:
        self._selector.unregister(group.channel)
        group.channel.close()
        self._tell_store({"op": "close", "group": group.number})
        for message in group.waiting:
            _close_all(message.fds)
        group.closed = True
        if not group.parted:
            self._kill(group)
        self._forget(group)

    def _kill(self, group: _Group) -> None:
        for rank in group.pids:
            self._signal(group, rank, signal.SIGKILL)
        for pid in group.pids.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        group.pids.clear()

    def _forget(self, group: _Group) -> None:
        """Strikes a group off that is closed and has no ranks left."""
        if group.closed and not group.pids:
            del self._groups[group.number]
            self._sweep()

    # Ranks

    def _start(self, group: _Group, message: Message) -> None:
        start = RankStart.from_message(message)
        self._spare_goal = min(max(self._spare_goal, len(group.pids) + 1), _MAX_SPARES)
        if self._method == "spawn":
            group.pids[start.rank] = spawn(
                f"{rank_process.__name__}:main", start.fds, start.environment, start.options()
            )
        elif self._spares:
            pid, channel = self._spares.popitem()
            with contextlib.suppress(OSError):  # it has just been killed: its death will be told as the rank's
                channel.send(message.header, fds=message.fds)
            channel.close()
            group.pids[start.rank] = pid
        else:
            child = self._fork(lambda parent: rank_process.become(start, parent))
            if child is None:
                return
            group.pids[start.rank] = child
        _close_all(message.fds)

    def _fork(self, become: Callable[[int], None]) -> int | None:
        """Forks; returns the child's process, and `None` in the child, which is to become something else."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become = lambda: become(parent)
            return None
        return pid

    def _add_spare(self) -> None:
        ours, theirs = pair()
        pid = self._fork(lambda parent: rank_process.stand_by(Channel(theirs), parent))
        if pid is None:
            ours.close()
        else:
            theirs.close()
            self._spares[pid] = Channel(ours)

    def _signal(self, group: _Group, rank: int, signum: int) -> None:
        for message in [late for late in group.waiting if late.header["rank"] == rank]:
            group.waiting.remove(message)  # it has not begun, and will not
            _close_all(message.fds)
            group.channel.send({"rank": rank, "status": -signum, "at": time.time(), "peak": None})
        if rank not in group.pids:
            return
        if signum == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError):  # it has not become a group of its own yet
                os.killpg(group.pids[rank], signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(group.pids[rank], signum)

    def _on_child(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup[0].recv(4096):
                pass
        ranks = {pid: (group, rank) for group in self._groups.values() for rank, pid in group.pids.items()}
        while (pid := children.ended()) is not None:
            if pid in ranks:
                # Not reaped yet, so the number still names this rank's process group and no other.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            self._kept.discard(pid)
            if pid in self._spares:
                self._spares.pop(pid).close()
                self._spare_goal -= 1  # whatever has ended it may end the next; the next launch asks for more
            if pid in ranks:
                group, rank = ranks[pid]
                del group.pids[rank]
                peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
                with contextlib.suppress(OSError):
                    group.channel.send(
                        {"rank": rank, "status": os.waitstatus_to_exitcode(status), "at": time.time(), "peak": peak}
                    )
                self._forget(group)

    def _sweep(self) -> None:
        """Ends processes that ranks have left behind, once no rank is left that could own one."""
        if any(group.pids for group in self._groups.values()):
            return
        for pid in children.pids():
            # What shares our session is of our kind: a store, a successor, or the successor of a successor that ended.
            if pid not in self._kept and pid not in self._spares and not children.shares_session(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # The store

    def _meet(self, group: _Group, message: Message) -> None:
        """Opens the group's store. With one machine nobody waits: the socket listens already."""
        group.met = message.header["num_nodes"] == 1
        request = {**message.header, "op": "open", "group": group.number}
        if not self._tell_store(request, message.fds):
            self._drop_store()  # it was killed just now
            self._start_store()
            if self._become is None:
                self._tell_store(request, message.fds)
        _close_all(message.fds)

    def _start_store(self) -> None:
        ours, theirs = pair()
        if self._method == "spawn":
            self._kept.add(spawn(f"{store_module.__name__}:main", [theirs.fileno()], os.environ))
        else:
            pid = self._fork(lambda _: store_module.main(theirs.fileno()))
            if pid is None:
                ours.close()
                return
            self._kept.add(pid)
        theirs.close()
        self._store = Channel(ours)
        self._selector.register(self._store, selectors.EVENT_READ, self._on_store)

    def _tell_store(self, header: dict[str, Any], fds: Sequence[int] = ()) -> bool:
        """Sends; returns whether there was a store to hear it."""
        if self._store is None:
            return False
        try:
            self._store.send(header, fds=fds)
        except OSError:
            return False
        return True

    def _drop_store(self) -> None:
        if self._store is not None:
            self._selector.unregister(self._store)
            self._store.close()
            self._store = None

    def _on_store(self) -> None:
        assert self._store is not None
        messages = self._store.receive(wait=False)
        if messages is None:
            self._drop_store()
            return
        self._handle(messages, self._on_store_message)

    def _on_store_message(self, message: Message) -> None:
        group = self._groups.get(message.header["group"])
        if group is None:
            return
        if message.header["error"]:
            with contextlib.suppress(OSError):  # the kernel has just closed it
                group.channel.send({"error": message.header["error"]})
        elif not group.met:
            group.met = True
            while group.waiting and self._become is None:
                self._start(group, group.waiting.pop(0))

    # The next server

    def _preload(self, modules: Sequence[str], environment: Mapping[str, str], fd: int) -> None:
        """Forks a successor, which imports while this server goes on serving."""

        def succeed(parent: int) -> None:
            # While it imports, it hears nobody: it goes with this server then.
            rank_process.die_with(parent)
            rank_process.take_environment(environment)  # what the notebook's own imports have seen
            forking.keep_threads_out()
            serve(self._method, Channel(socket.socket(fileno=fd)), self._kernel, modules)

        pid = self._fork(succeed)
        if pid is not None:
            self._kept.add(pid)
            os.close(fd)


def serve(method: str, control: Channel, kernel: int, modules: Sequence[str]) -> None:
    """Imports, says so, and serves. What `run` returns is then run, outside of every loop."""
    adopt_orphans()
    broken = import_all(modules, lambda package: control.send({"importing": package}))
    if method == "fork":
        rank_process.prepare()
        forking.prepare()
    rank_process.outlive_parent()
    control.send({"ready": broken is None, "broken": broken})
    if broken is not None:
        os._exit(0)
    Server(method, control, kernel).run()()


def main(fd: int, method: str, kernel: int) -> None:
    """The server's process begins here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What started the kernel may have blocked signals, and a mask is inherited.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    control = Channel(socket.socket(fileno=fd))
    if method == "fork":
        forking.keep_threads_out()
    for name in PRELOADED if method == "fork" else ():
        with contextlib.suppress(ImportError):  # the rank that needs it will say so
            importlib.import_module(name)
    serve(method, control, kernel, ())


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
