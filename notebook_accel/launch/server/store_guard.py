"""PROCESS next to the store's: keeps other users of this machine out of stores.

    rank ──▶ listener of the launch ── relay, if the rank is this user's ──▶ listener of the store

A store holds the addresses at which ranks connect to each other, and ranks unpickle what comes from there, so a process
that can write to a store can run code as this user. Torch's store has no authentication. It therefore gets a listener
of its own, at the same port of another loopback address. The socket filter of this listener has the system drop all
packets but those of the relay, which admits only connections of this user's processes. (The relay is a process because
torch holds Python's lock while a new store's own client connects, through the relay too.)
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import secrets
import select
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial

from notebook_accel.launch.system import limits, network
from notebook_accel.launch.system.network import OwnerQuery
from notebook_accel.launch.system.own_process import die_with_parent
from notebook_accel.launch.wire.stream import Channel, pair

_LOOPBACK = "127.0.0.1"
_BACKLOG = 4096
_CHUNK = 256 * 1024
_MOST_PORTS = 500
"""The most ports in a filter, whose size is limited. An open connection keeps the filter that it was made with."""
_ATTACH_FILTER = 26  # SO_ATTACH_FILTER
# Instructions of classic BPF: an operation, where to jump if a comparison is true and if it is false, and an operand.
_LOAD_SOURCE_ADDRESS = (0x20, 0, 0, 0xFFF0000C)  # from the IP header
_LOAD_SOURCE_PORT = (0x28, 0, 0, 0)  # from the TCP header
_IS_LOOPBACK = (0x15, 1, 0, int.from_bytes(socket.inet_aton(_LOOPBACK), "big"))
_ADMIT = (0x06, 0, 0, 0xFFFFFFFF)
_DROP = (0x06, 0, 0, 0)


@functools.cache
def is_available() -> bool:
    """Whether this system says who owns a connection, and lets this user filter packets, which some let only root."""
    if not network.knows_owners():
        return False
    try:
        with socket.socket() as probe:
            attach_filter(probe, [_DROP])
    except OSError:
        return False
    return True


def attach_filter(listener: socket.socket, steps: Sequence[tuple[int, int, int, int]]) -> None:
    """Makes the system drop what arrives at a listener, except what the steps admit.

    Raises:
        OSError: The system has no socket filters, or none for this user.
    """
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    pointer = struct.pack("HP", len(steps), ctypes.addressof(program))
    listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)


class StoreGuard:
    """Starts the process, and sends it listeners."""

    def __init__(self) -> None:
        parent = os.getpid()
        local, remote = pair()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                fd = os.dup2(remote.fileno(), 3)
                limits.close_from(fd + 1)
                die_with_parent(parent)
                _Relay(Channel(socket.socket(fileno=fd))).run()
            finally:
                os._exit(0)
        remote.close()
        self._connection = local
        self._channel = Channel(local)

    def guard(self, listener: int) -> tuple[int, Callable[[], None]]:
        """Guards a store on the loopback interface.

        Args:
            listener: The listening socket that ranks connect to, which is taken over.

        Returns:
            The listening socket for the store, which closes it, and a function that ends the guard of this store.

        Raises:
            OSError: The process was killed, or the system has no socket filters.
        """
        self._channel.send({}, fds=[listener])
        for message in self._channel.messages():
            if not message.fds:
                raise OSError(message.header["error"])
            return message.fds[0], partial(_end, socket.socket(fileno=listener))
        raise ConnectionResetError("the guard of the store was killed")

    def close(self) -> None:
        """Ends the process, also if forks of this one have copies of the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._channel.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _end(listener: socket.socket) -> None:
    """Ends a guard. The port is free at once; the relay, which has the same socket, notices."""
    with contextlib.suppress(OSError), listener:
        listener.shutdown(socket.SHUT_RDWR)


class _End:
    """One of two connections that the relay joins: that of a rank, or that to the store."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.other = self
        self.unsent = bytearray()
        """What the other end has sent and this one has had no room for."""
        self.is_over = False
        """Nothing more will come from this end."""

    def send(self, data: bytes) -> None:
        """Sends as much as there is room for, and keeps the rest."""
        self.unsent += data
        if self.unsent:
            with contextlib.suppress(BlockingIOError):
                del self.unsent[: self.connection.send(self.unsent)]


class _Store:
    """A store: its two listeners, and the connections between them.

    Raises:
        OSError: The system has no socket filters.
    """

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.listener.setblocking(False)
        self.ports: dict[_End, int] = {}
        """The port of each of the relay's connections to the store."""
        self.filtered = socket.socket()
        """The listener of the store, which has the same socket."""
        self.filter()
        # The store expects to listen at the port that its own client connects to, which is the ranks'.
        random = ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))
        self.filtered.bind((f"127.{random}", listener.getsockname()[1]))
        self.filtered.listen(_BACKLOG)

    def connect(self) -> _End:
        """A new connection to the store."""
        end = _End(socket.socket())
        end.connection.bind((_LOOPBACK, 0))  # the port is the relay's alone until the connection is closed
        self.ports[end] = end.connection.getsockname()[1]
        self.filter()
        end.connection.connect(self.filtered.getsockname())
        return end

    def forget(self, end: _End) -> None:
        """Admits the port of a connection no longer, since other processes may use it after the connection's end."""
        if self.ports.pop(end, None) is not None:
            self.filter()

    def filter(self) -> None:
        """Makes the system drop what arrives at the store, except from the ports of the relay."""
        ports = list(self.ports.values())[-_MOST_PORTS:]
        matches = [step for port in ports for step in ((0x15, 0, 1, port), _ADMIT)]
        steps = [_LOAD_SOURCE_ADDRESS, _IS_LOOPBACK, _DROP, _LOAD_SOURCE_PORT, *matches, _DROP]
        attach_filter(self.filtered, steps)


class _Relay:
    """The loop of the process, which ends when the channel is closed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._owners = OwnerQuery()
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], object]] = {}
        """By descriptor: what is called with its events."""
        self._ends: dict[_Store, set[_End]] = {}
        self._is_open = True

    def run(self) -> None:
        self._register(self._channel.fileno(), lambda _: self._receive())
        while self._is_open:
            for fd, events in self._epoll.poll():
                if fd in self._handlers:  # it may have been closed with the previous one
                    self._handlers[fd](events)

    def _register(self, fd: int, handler: Callable[[int], object]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def _receive(self) -> None:
        messages = self._channel.receive(wait=False)
        self._is_open = messages is not None
        for message in messages or ():
            self._open(socket.socket(fileno=message.fds[0]))

    def _open(self, listener: socket.socket) -> None:
        try:
            store = _Store(listener)
        except OSError as error:
            listener.close()
            self._channel.send({"error": str(error)})
            return
        self._ends[store] = set()
        self._register(listener.fileno(), lambda _: self._accept(store))
        self._channel.send({}, fds=[store.filtered.fileno()])

    def _close(self, store: _Store) -> None:
        del self._handlers[store.listener.fileno()]
        store.listener.close()
        for end in [*self._ends[store]]:
            self._drop(store, end)
        store.filtered.close()
        del self._ends[store]

    def _accept(self, store: _Store) -> None:
        try:
            connection, _ = store.listener.accept()
        except OSError as error:
            if error.errno == errno.EINVAL:  # it no longer listens
                self._close(store)
            return
        if self._owners.is_own(connection):
            self._join(store, _End(connection))
        else:
            connection.close()

    def _join(self, store: _Store, end: _End) -> None:
        """Joins an accepted connection to a new one to the store."""
        try:
            end.other = store.connect()
        except OSError:  # the store has just ended
            end.connection.close()
            return
        end.other.other = end
        for each in (end, end.other):
            self._ends[store].add(each)
            each.connection.setblocking(False)
            each.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._register(each.connection.fileno(), partial(self._forward, store, each))

    def _forward(self, store: _Store, end: _End, events: int) -> None:
        """Passes on what has arrived at an end, and what could not be sent to it before."""
        try:
            end.send(b"")
            if events & ~select.EPOLLOUT:
                data = end.connection.recv(_CHUNK)
                end.is_over = not data
                end.other.send(data)
        except BlockingIOError:
            pass
        except OSError:
            end.is_over = True
            end.other.unsent.clear()
        if any(each.is_over and not each.other.unsent for each in (end, end.other)):
            self._drop(store, end)
        elif end.unsent or end.other.unsent or events != select.EPOLLIN:
            for each in (end, end.other):
                reading = 0 if each.is_over or each.other.unsent else select.EPOLLIN
                self._epoll.modify(each.connection, reading | (select.EPOLLOUT if each.unsent else 0))

    def _drop(self, store: _Store, end: _End) -> None:
        """Closes a connection and the one that it is joined to."""
        for each in (end, end.other):
            self._ends[store].discard(each)
            store.forget(each)
            if self._handlers.pop(each.connection.fileno(), None) is not None:
                each.connection.close()
