"""The process that starts ranks: a child of the kernel that is never anything but clean.

    kernel ── control ──▶ server ──▶ store process
      │  ╲─── group ────▶   │  fork, or spawn
      ╰── channel, pipes ─▶ ranks

On the control socket the kernel opens groups, and asks for a successor that has more modules imported. Each group has a
socket of its own, on which the kernel starts and signals ranks and learns how they ended. When the kernel goes, or
closes a group, the ranks are killed. The server imports torch, touches no device and starts no thread, so a fork of it
is safe.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from notebook_accel.launch.rank import main as rank_process
from notebook_accel.launch.rank.main import RankStart
from notebook_accel.launch.server import forking
from notebook_accel.launch.server.groups import Group, close_all
from notebook_accel.launch.server.preloading import import_all
from notebook_accel.launch.server.store_link import StoreLink
from notebook_accel.launch.server.warm_ranks import WarmRanks
from notebook_accel.launch.system import children, libc, own_process
from notebook_accel.launch.system.children import adopt_orphans
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.system.processes import spawn
from notebook_accel.launch.tpu import supervisor
from notebook_accel.launch.wire.stream import Channel, Message, pair

_MODULES = ("torch", "torch.distributed", "numpy", "cloudpickle", "tqdm", "threadpoolctl")
PRELOADED: Mapping[str, Sequence[str]] = {
    "fork": _MODULES,
    "spawn": (),  # a fresh interpreter inherits nothing
    "xla": (*_MODULES, *supervisor.MODULES),
}
"""By the method."""


@dataclass(frozen=True)
class _Forked:
    """What a fork of the server becomes."""

    become: Callable[[RankStart, int], object]
    """At once."""
    stand_by: Callable[[Channel, int], object]
    """As a spare."""
    spares: int
    """How many of those there are at first."""


_FORKED = {
    "fork": _Forked(rank_process.become, rank_process.stand_by, 2),
    "xla": _Forked(supervisor.become, supervisor.stand_by, 1),
    "spawn": _Forked(rank_process.become, rank_process.stand_by, 0),  # which has no forks
}
"""By the method."""
_QUIET = 0.02
"""Seconds without a request before the server sees to its own affairs."""
_QUIET_BESIDE_GROUPS = 0.5
"""The same while there are groups: their ranks have begun by then, and most that end soon have ended."""
_LOOPBACK = "127.0.0.1"


class Server:
    """The loop. `run` returns only in a process that has become something else."""

    def __init__(self, method: str, control: Channel, kernel: int) -> None:
        self._method = method
        self._control = control
        self._kernel = kernel
        self._groups: dict[int, Group] = {}
        self._opened = 0
        self._retired = False
        self._inbox: deque[Message] = deque()
        self._forked = _FORKED[method]
        self._spares = WarmRanks(self._forked.stand_by, self._forked.spares)
        self._pages: Iterator[None] | None = forking.use_huge_pages()
        self._rehearsed = False
        self._successors: set[int] = set()
        """Their processes, which outlive the groups."""
        self._selector = selectors.DefaultSelector()
        self._wakeup = pair()
        self._store = StoreLink(method, self._selector, lambda messages: self._handle(messages, self._on_store_message))

    def run(self) -> Callable[[], object]:
        """Serves; returns what to be, in a child that is to be a rank, a store or the next server."""
        self._listen()
        ready = True
        try:
            while self._groups or not self._retired:
                chore = self._chore()
                quiet = _QUIET_BESIDE_GROUPS if self._groups else _QUIET
                found = self._selector.select(None if chore is None else quiet if ready else 0.0)
                ready = bool(found)
                for key, _ in found:
                    key.data()
                if chore is not None and not ready:
                    chore()
        except forking.Unwind as fork:
            self._release()
            return fork.become
        os._exit(0)

    def _chore(self) -> Callable[[], None] | None:
        """What to do next to be ready for a launch, in steps of milliseconds, while nobody asks for anything."""
        if self._method == "spawn" or self._retired:
            return None
        if self._groups:
            return self._spares.add if self._spares.are_few else None
        if self._pages is not None:
            return self._take_page
        if not self._store.is_up and not self._store.is_refused:
            return self._start_store
        if self._spares.are_few:
            return self._spares.add
        return None if self._rehearsed else self._rehearse

    def _take_page(self) -> None:
        assert self._pages is not None
        if next(self._pages, self) is self:
            self._pages = None

    def _rehearse(self) -> None:
        """Opens a group without ranks, so that what every group writes to is no longer shared with the forks."""
        self._rehearsed = True
        ours, theirs = pair()
        self._open(theirs.detach())
        with socket.create_server((_LOOPBACK, 0)) as listener, contextlib.closing(Channel(ours)) as kernel:
            meeting = {"host": _LOOPBACK, "port": listener.getsockname()[1], "num_nodes": 1, "join_timeout": 1.0}
            kernel.send({"op": "meet", **meeting}, fds=[listener.fileno()])

    def _listen(self) -> None:
        for end in self._wakeup:
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakeup[1].fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # What started the kernel may have blocked signals, or a package as it was imported, and ranks inherit the mask.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._on_child)
        self._selector.register(self._control, selectors.EVENT_READ, self._on_control)
        if hasattr(os, "pidfd_open"):
            # A process that the kernel has forked may hold the other end of our socket open after the kernel is gone.
            with contextlib.suppress(OSError):
                self._selector.register(os.pidfd_open(self._kernel), selectors.EVENT_READ, self._end)

    def _release(self) -> None:
        """Closes, in a child, what belongs to the server alone."""
        signal.set_wakeup_fd(-1)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, int):
                os.close(key.fileobj)
        self._selector.close()
        for end in self._wakeup:
            end.close()
        for message in self._inbox:
            close_all(message.fds)
        self._control.close()
        self._store.release()
        self._spares.release()
        for group in self._groups.values():
            group.release()

    def _end(self) -> None:
        """The kernel is gone: so is everything that it started."""
        for group in self._groups.values():
            group.kill()
        self._sweep()
        os._exit(0)

    def _handle(self, messages: list[Message], handle: Callable[[Message], None]) -> None:
        self._inbox.extend(messages)
        while self._inbox:
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
            self._preload(message.header, message.fds[0])
        elif operation == "retire":
            self._retired = True

    def _open(self, fd: int) -> None:
        self._opened += 1
        group = Group(self._opened, Channel(socket.socket(fileno=fd)))
        self._groups[group.number] = group
        self._selector.register(group.channel, selectors.EVENT_READ, lambda: self._on_group(group))
        if not self._store.is_up:
            self._start_store()

    def _start_store(self) -> None:
        with contextlib.suppress(OSError):  # whoever needs it will be told
            self._store.start()

    def _on_group(self, group: Group) -> None:
        messages = group.channel.receive(wait=False)
        if messages is None:
            self._close(group)
        else:
            self._handle(messages, lambda message: self._on_group_message(group, message))

    def _on_group_message(self, group: Group, message: Message) -> None:
        operation = message.header["op"]
        if operation == "meet":
            self._meet(group, message)
        elif operation == "rank" and group.failed:
            close_all(message.fds)
        elif operation == "rank" and group.met:
            self._start(group, message)
        elif operation == "rank":
            group.waiting.append(message)
        elif operation == "signal":
            group.signal(message.header["rank"], message.header["signum"])
        elif operation == "close_store":
            self._store.close(group.number)
        elif operation == "part":
            group.parted = True

    def _close(self, group: Group) -> None:
        self._selector.unregister(group.channel)
        group.release()
        self._store.close(group.number)
        group.closed = True
        if not group.parted:
            group.kill()
        self._forget(group)

    def _forget(self, group: Group) -> None:
        """Strikes a group off that is over."""
        if group.is_over:
            del self._groups[group.number]
            self._sweep()

    # Ranks

    def _meet(self, group: Group, message: Message) -> None:
        """Opens the group's store. With one machine nobody waits: the socket listens already."""
        group.met = message.header["num_nodes"] == 1
        try:
            self._store.open({**message.header, "op": "open", "group": group.number}, message.fds)
        except OSError as error:
            group.fail(f"the ranks have no place to meet: its process can't be started: {explain_refusal(error)}")
        finally:
            close_all(message.fds)

    def _on_store_message(self, message: Message) -> None:
        group = self._groups.get(message.header["group"])
        if group is None:
            return
        if message.header["error"]:
            group.fail(message.header["error"])
        elif not group.met:
            group.met = True
            while group.waiting:
                self._start(group, group.waiting.pop(0))

    def _start(self, group: Group, message: Message) -> None:
        start = RankStart.from_message(message)
        self._spares.expect(len(group.pids) + 1)
        try:
            group.pids[start.rank] = self._process_of(start, message)
        except OSError as error:
            group.fail(f"rank {start.rank} can't be started: {explain_refusal(error)}")
        close_all(message.fds)

    def _process_of(self, start: RankStart, message: Message) -> int:
        """Starts the process of a rank, or has a spare become it.

        Raises:
            OSError: The system refuses.
        """
        if self._method == "spawn":
            return spawn(f"{rank_process.__name__}:main", start.fds, start.environment, start.options())
        return self._spares.become(message) or forking.fork(partial(self._forked.become, start))

    # Children that end

    def _on_child(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup[0].recv(4096):
                pass
        ranks = {pid: (group, rank) for group in self._groups.values() for rank, pid in group.pids.items()}
        while (pid := children.find_ended()) is not None:
            if pid in ranks:
                # Not reaped yet, so the number still names this rank's process group and no other.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            self._successors.discard(pid)
            self._spares.lose(pid)
            if pid in ranks:
                group, rank = ranks[pid]
                del group.pids[rank]
                peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
                group.tell_end(rank, os.waitstatus_to_exitcode(status), peak)
                self._forget(group)
            elif not self._groups:
                self._sweep()  # an orphan of a rank's has left orphans of its own

    def _sweep(self) -> None:
        """Ends processes that ranks have left behind, once no rank is left that could own one."""
        if any(group.pids for group in self._groups.values()):
            return
        kept = {self._store.pid, *self._successors}
        for pid in children.pids():
            # What shares our session is of our kind: a store, a successor, or the successor of a successor that ended.
            if pid not in kept and pid not in self._spares and not children.shares_session(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # The next server

    def _preload(self, wanted: Mapping[str, Any], fd: int) -> None:
        """Forks a successor, which imports while this server goes on serving; perhaps for another process."""

        def succeed(parent: int) -> None:
            # While it imports, it hears nobody: it goes with this server then.
            libc.die_with_parent(parent)
            own_process.set_environment(wanted["env"])  # what the notebook's own imports have seen
            forking.before_imports()
            serve(self._method, Channel(socket.socket(fileno=fd)), wanted["kernel"], wanted["modules"])

        with contextlib.suppress(OSError):  # the kernel goes on with this server
            self._successors.add(forking.fork(succeed))
        os.close(fd)


def serve(method: str, control: Channel, kernel: int, modules: Sequence[str]) -> None:
    """Imports, says so, and serves. What `run` returns is then run, outside of every loop."""
    adopt_orphans()
    broken = import_all(modules, lambda package: control.send({"importing": package}))
    if method != "spawn":
        rank_process.prepare()
        forking.prepare()
    libc.outlive_parent()
    control.send({"ready": broken is None, "broken": broken})
    if broken is not None:
        os._exit(0)
    Server(method, control, kernel).run()()


def main(fd: int, method: str, kernel: int) -> None:
    """The server's process begins here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = Channel(socket.socket(fileno=fd))
    if method != "spawn":
        forking.before_imports()
    for name in PRELOADED[method]:
        with contextlib.suppress(Exception):  # the rank that needs it will say so
            importlib.import_module(name)
    serve(method, control, kernel, ())
