"""The loop of the fork server: it waits for requests, for the ends of child processes, and for time to do chores.

On the control socket, the kernel opens groups, and requests a successor that has imported more modules. Each group has
its own socket, on which the kernel starts and signals ranks and receives their exit statuses. When the kernel ends or
closes a group, the group's ranks are killed. While idle, the server forks warm ranks, which wait for a launch.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from notebook_accel.launch.rank import main as rank_main
from notebook_accel.launch.rank.main import RankStart
from notebook_accel.launch.server import abandoned, forking
from notebook_accel.launch.server.forking import ForkLoop
from notebook_accel.launch.server.groups import Group
from notebook_accel.launch.server.start_methods import START_METHODS
from notebook_accel.launch.server.store_link import StoreLink
from notebook_accel.launch.server.warm_ranks import WarmRanks
from notebook_accel.launch.system import own_process
from notebook_accel.launch.system.limits import explain_refusal
from notebook_accel.launch.system.processes import spawn
from notebook_accel.launch.wire.stream import Channel, Message, close_all, pair

Serve = Callable[[str, Channel, int, Sequence[str]], None]

_QUIET_SECONDS = 0.02
"""Seconds without a request before the server does its next chore."""
_QUIET_SECONDS_WITH_GROUPS = 0.5
"""The same while there are groups. After this time their ranks have started, and most short launches have ended."""
_LOOPBACK = "127.0.0.1"


class Server(ForkLoop):
    """The loop of the process. `run` returns only in a fork, as a rank, a store or the next server.

    Args:
        method: A start method, of the table `START_METHODS`.
        control: The control socket.
        kernel: The process ID of the kernel.
        serve: What a successor runs, with the method, its control socket, its kernel, and the modules to import first.
    """

    def __init__(self, method: str, control: Channel, kernel: int, serve: Serve) -> None:
        super().__init__()
        self._method = method
        self._control = control
        self._kernel = kernel
        self._succeed = serve
        self._groups: dict[int, Group] = {}
        self._opened = 0
        self._retired = False
        self._inbox: deque[Message] = deque()
        self._run_forked = START_METHODS[method].run_forked
        self._warm_ranks = WarmRanks(START_METHODS[method].wait_for_launch, START_METHODS[method].warm_at_start)
        self._huge_pages: Iterator[None] | None = forking.use_huge_pages()
        self._has_opened_empty_group = False
        self._successors: set[int] = set()
        """Process IDs of the servers that this one has forked. They outlive the groups."""
        self._replacement = 0
        """The process ID of the one that is to replace this one, while it lives."""
        self._end_of_kernel = own_process.watch(kernel)
        self._store = StoreLink(method, self, lambda messages: self._handle(messages, self._on_store_message))

    def _serve(self) -> None:
        """Serves until retired."""
        self.register(self._control, self._on_control)
        # A process that the kernel has forked may hold the other end of the control socket open after it has ended.
        if self._end_of_kernel is not None:
            self.register(self._end_of_kernel, self._exit_with_kernel)
        ready = True
        while self._groups or not self._retired:
            chore = self._next_chore()
            quiet = _QUIET_SECONDS_WITH_GROUPS if self._groups else _QUIET_SECONDS
            ready = self.run_once(math.inf if chore is None else quiet if ready else 0.0)
            if chore is not None and not ready:
                chore()

    def _next_chore(self) -> Callable[[], None] | None:
        """Does the next step of preparing for a launch, which takes milliseconds, while there are no requests."""
        if self._method == "spawn" or self._retired:
            return None
        if self._groups:
            return self._warm_ranks.add if self._warm_ranks.are_too_few else None
        if self._huge_pages is not None and not self._replacement:  # which copies again what this process moves now
            return self._collapse_page
        if not self._store.is_up and not self._store.is_refused:
            return self._start_store
        if self._warm_ranks.are_too_few:
            return self._warm_ranks.add
        return None if self._has_opened_empty_group else self._open_empty_group

    def _collapse_page(self) -> None:
        assert self._huge_pages is not None
        if next(self._huge_pages, self) is self:
            self._huge_pages = None

    def _open_empty_group(self) -> None:
        """Opens a group without ranks, so that memory that every group writes to is copied now, not in a launch."""
        self._has_opened_empty_group = True
        local, remote = pair()
        self._open(remote.detach())
        with socket.create_server((_LOOPBACK, 0)) as listener, contextlib.closing(Channel(local)) as kernel:
            rendezvous = {"host": _LOOPBACK, "port": listener.getsockname()[1], "num_nodes": 1, "join_timeout": 1.0}
            kernel.send({"op": "open_rendezvous", **rendezvous}, fds=[listener.fileno()])

    def _close_in_child(self) -> None:
        super()._close_in_child()
        if self._end_of_kernel is not None:
            os.close(self._end_of_kernel)
        for message in self._inbox:
            close_all(message.fds)
        self._control.close()
        self._store.release()
        self._warm_ranks.release()
        for group in self._groups.values():
            group.release()

    def _exit_with_kernel(self) -> None:
        """Kills all ranks and exits, because the kernel has ended."""
        for group in self._groups.values():
            group.kill()
        while killed := self._kill_leftovers():  # whose children this process adopts
            for pid in killed:
                os.waitpid(pid, 0)
        os._exit(0)

    def _handle(self, messages: list[Message], handle: Callable[[Message], None]) -> None:
        self._inbox.extend(messages)
        while self._inbox:
            handle(self._inbox.popleft())

    # Requests of the kernel

    def _on_control(self) -> None:
        messages = self._control.receive(wait=False)
        if messages is not None:
            self._handle(messages, self._on_control_message)
        elif self._retired:
            self.unregister(self._control)
            self._control.close()
        else:
            self._exit_with_kernel()

    def _on_control_message(self, message: Message) -> None:
        operation = message.header["op"]
        if operation == "group":
            self._open(message.fds[0])
        elif operation == "preload":
            self._fork_successor(message.header, message.fds[0])
        elif operation == "retire":
            self._retired = True

    def _open(self, fd: int) -> None:
        self._opened += 1
        group = Group(self._opened, Channel(socket.socket(fileno=fd)))
        self._groups[group.number] = group
        self.register(group.channel, lambda: self._on_group(group))
        if not self._store.is_up:
            self._start_store()

    def _start_store(self) -> None:
        with contextlib.suppress(OSError):  # `_open_store` tries again, and reports the error
            self._store.start()

    def _on_group(self, group: Group) -> None:
        messages = group.channel.receive(wait=False)
        if messages is None:
            self._close(group)
        else:
            self._handle(messages, lambda message: self._on_group_message(group, message))

    def _on_group_message(self, group: Group, message: Message) -> None:
        operation = message.header["op"]
        if operation == "open_rendezvous":
            self._open_store(group, message)
        elif operation == "rank" and group.failed:
            close_all(message.fds)
        elif operation == "rank" and group.has_rendezvous:
            self._start(group, message)
        elif operation == "rank":
            group.pending.append(message)
        elif operation == "signal":
            group.signal(message.header["rank"], message.header["signum"])
        elif operation == "close_store":
            self._store.close(group.number)
        elif operation == "expect_ends":
            group.exits_expected = True

    def _close(self, group: Group) -> None:
        self.unregister(group.channel)
        group.release()
        self._store.close(group.number)
        group.closed = True
        if not group.exits_expected:
            group.kill()
        self._remove_if_over(group)

    def _remove_if_over(self, group: Group) -> None:
        """Removes a group once it is closed and its last rank has been reaped."""
        if group.is_over:
            del self._groups[group.number]
            self._kill_leftovers()

    # Ranks

    def _open_store(self, group: Group, message: Message) -> None:
        """Opens the group's store. On a single node, no rank waits for it, since the socket already listens."""
        group.has_rendezvous = message.header["num_nodes"] == 1
        try:
            self._store.open({**message.header, "op": "open", "group": group.number}, message.fds)
        except OSError as error:
            group.fail(f"the process for the ranks' rendezvous can't be started: {explain_refusal(error)}")
        finally:
            close_all(message.fds)

    def _on_store_message(self, message: Message) -> None:
        group = self._groups.get(message.header["group"])
        if group is None:
            return
        if message.header["error"]:
            group.fail(message.header["error"])
        elif not group.has_rendezvous:
            group.has_rendezvous = True
            while group.pending:
                self._start(group, group.pending.pop(0))

    def _start(self, group: Group, message: Message) -> None:
        message.header["env"].update(abandoned.mark(self._kernel))
        start = RankStart.from_message(message)
        if start.runs_script:
            self._warm_ranks.expect_none()
        else:
            self._warm_ranks.expect(len(group.pids) + 1)
        try:
            group.pids[start.rank] = self._start_process(start, message)
        except OSError as error:
            group.fail(f"rank {start.rank} can't be started: {explain_refusal(error)}")
        close_all(message.fds)

    def _start_process(self, start: RankStart, message: Message) -> int:
        """Starts the process of a rank: a warm rank if there is one, otherwise a fork or a new interpreter.

        Raises:
            OSError: The system refuses to start it.
        """
        if self._method == "spawn":
            return spawn(f"{rank_main.__name__}:main", start.fds, start.environment, start.options())
        # A warm rank has drawn random numbers, which a script would notice.
        warm = None if start.runs_script else self._warm_ranks.assign(message)
        return warm or forking.fork(partial(self._run_forked, start))

    # The end of child processes

    def _reap(self) -> None:
        ranks = {pid: (group, rank) for group in self._groups.values() for rank, pid in group.pids.items()}
        while (pid := own_process.find_ended_child()) is not None:
            if pid in ranks:
                # Not reaped yet, so the number still names this rank's process group and no other.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            self._successors.discard(pid)
            if pid == self._replacement:
                self._replacement = 0
            self._warm_ranks.discard(pid)
            if pid in ranks:
                group, rank = ranks[pid]
                del group.pids[rank]
                peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
                group.report_end(rank, os.waitstatus_to_exitcode(status), peak)
                self._remove_if_over(group)
            elif not self._groups:
                self._kill_leftovers()  # a process that a rank left behind may have left children of its own

    def _kill_leftovers(self) -> list[int]:
        """Kills the children that ranks have left behind, once there is no rank that could own one; returns them."""
        if any(group.pids for group in self._groups.values()):
            return []
        killed = []
        own = {self._store.pid, *self._successors}
        for pid in own_process.children():
            # Processes in this session belong to no rank: a store, a successor, or the successor of one that has ended.
            if pid not in own and pid not in self._warm_ranks and not own_process.shares_session(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
        return killed

    # The next server

    def _fork_successor(self, request: Mapping[str, Any], fd: int) -> None:
        """Forks a successor, which imports modules while this server keeps serving. It may serve another kernel."""

        def become_successor(parent: int) -> None:
            # During imports it reads no socket and would miss the kernel's end, so until then it ends with this server.
            own_process.die_with_parent(parent)
            own_process.set_environment(request["env"])  # the variables that the notebook's own imports saw
            forking.before_imports()
            self._succeed(self._method, Channel(socket.socket(fileno=fd)), request["kernel"], request["modules"])

        with contextlib.suppress(OSError):  # without a successor the kernel keeps using this server
            successor = forking.fork(become_successor)
            self._successors.add(successor)
            if request["kernel"] == self._kernel:
                self._replacement = successor
        os.close(fd)
