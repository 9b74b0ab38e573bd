"""PROCESS next to the store's: keeps other users of this machine out of stores.

    rank ──▶ listener of the launch ── relay, if the rank is this user's ──▶ listener of the store

A store holds the addresses at which ranks connect to each other, and ranks unpickle what comes from there, so a process
that can write to a store can run code as this user. Torch's store has no authentication. It therefore gets a listener
of its own, at the same port of another loopback address. The socket filter of this listener has the system drop all
packets but those of the relay, which admits only connections of this user's processes. (The relay is a process because
torch holds Python's lock while a new store's own client connects, through the relay too.)
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import functools
import os
import secrets
import socket
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from notebook_accel.launch.system import limits, network
from notebook_accel.launch.system.network import OwnerQuery
from notebook_accel.launch.system.own_process import die_with_parent
from notebook_accel.launch.wire.stream import Channel, pair

_LOOPBACK = "127.0.0.1"
_BACKLOG = 4096
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
                asyncio.run(_relay(Channel(socket.socket(fileno=fd))))
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


class _End(asyncio.Protocol):
    """One of two connections that are joined: that of a rank, or that to the store."""

    def __init__(self, on_closed: Callable[[], object]) -> None:
        self.other = self
        self._on_closed = on_closed
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_closed()
        self.other.transport.close()  # once it has sent what is left


class _Store:
    """A store: its two listeners, and the connections between them.

    Raises:
        OSError: The system has no socket filters.
    """

    def __init__(self, listener: socket.socket, owners: OwnerQuery) -> None:
        self._owners = owners
        self._listener = listener
        self._listener.setblocking(False)
        self._ports: list[int] = []
        """Those of the relay's connections to the store."""
        self.filtered = socket.socket()
        """The listener of the store, which has the same socket."""
        self._filter()
        # The store expects to listen at the port that its own client connects to, which is the ranks'.
        random = ".".join(str(1 + secrets.randbelow(254)) for _ in range(3))
        self.filtered.bind((f"127.{random}", listener.getsockname()[1]))
        self.filtered.listen(_BACKLOG)
        asyncio.get_running_loop().add_reader(listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno == errno.EINVAL:  # it no longer listens
                self._close()
            return
        if self._owners.is_own(connection):
            asyncio.get_running_loop().create_task(self._join(connection))
        else:
            connection.close()

    async def _join(self, connection: socket.socket) -> None:
        """Joins an accepted connection to a new one to the store."""
        connect, link = asyncio.get_running_loop().connect_accepted_socket, socket.socket()
        link.bind((_LOOPBACK, 0))
        port = link.getsockname()[1]  # the relay's alone until the connection is closed
        of_rank, of_store = _End(int), _End(partial(self._forget, port))
        of_rank.other, of_store.other = of_store, of_rank
        self._ports.append(port)
        self._filter()
        try:
            link.connect(self.filtered.getsockname())
        except OSError:  # the store has just ended
            connection.close()
            link.close()
            self._forget(port)
            return
        for end in (link, connection):  # asyncio does so only where the protocol is named
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await connect(lambda: of_store, link)  # which says nothing until the rank does
        await connect(lambda: of_rank, connection)

    def _forget(self, port: int) -> None:
        """Admits a port no longer, since other processes may use it after the connection's end."""
        self._ports.remove(port)
        with contextlib.suppress(OSError):  # the store has ended
            self._filter()

    def _filter(self) -> None:
        """Makes the system drop what arrives at the store, except from the ports of the relay."""
        matches = [step for port in self._ports[-_MOST_PORTS:] for step in ((0x15, 0, 1, port), _ADMIT)]
        steps = [_LOAD_SOURCE_ADDRESS, _IS_LOOPBACK, _DROP, _LOAD_SOURCE_PORT, *matches, _DROP]
        attach_filter(self.filtered, steps)

    def _close(self) -> None:
        """Closes the listeners. The store has closed its connections, and with each, the relay closes the rank's."""
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self.filtered.close()


async def _relay(channel: Channel) -> None:
    """Guards stores until the channel is closed."""
    owners, loop = OwnerQuery(), asyncio.get_running_loop()
    is_closed = loop.create_future()

    def receive() -> None:
        messages = channel.receive(wait=False)
        if messages is None:
            loop.remove_reader(channel)
            is_closed.set_result(None)
        for message in messages or ():
            listener = socket.socket(fileno=message.fds[0])
            try:
                channel.send({}, fds=[_Store(listener, owners).filtered.fileno()])
            except OSError as error:
                listener.close()
                channel.send({"error": str(error)})

    loop.add_reader(channel, receive)
    await is_closed
