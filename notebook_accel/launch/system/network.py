"""The network of this machine: interfaces, reserved ports, names, and who owns a connection."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import re
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_SIOCGIFADDR = 0x8915
LOOPBACK = "127.0.0.1"
CONFIGURATION = Path("/etc/nsswitch.conf")
"""Where the system's order of look-ups is configured."""
_HOSTS = re.compile(r"^hosts:([^#\n]*)", re.MULTILINE)
OWN_THREADS = "notebook-accel"
"""How the names of this package's threads begin. None of them looks up names while ranks connect."""
_DEFAULT = "dns [!UNAVAIL=return] files"
"""Where glibc looks without a configuration, nsswitch.conf(5)."""
_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = 1  # NLM_F_REQUEST
_ESTABLISHED = 1
_ANY = 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
"""Of a netlink message: its length, type, flags, sequence number and port."""
_QUERY = struct.Struct("=BBxxI2s2s4s12x4s12x4xII")
"""`inet_diag_req_v2`: family, protocol, states; the ports and addresses of the socket and of its peer; any cookie."""
_ANSWER = struct.Struct("=xB62xII")
"""The state, the owner and the inode in an `inet_diag_msg`."""


def interface_of(address: str) -> str | None:
    """The interface that has this IPv4 address; `None` if unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                reply = fcntl.ioctl(query, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return "lo0" if os.uname().sysname == "Darwin" and address == LOOPBACK else None


def interface_to(host: str, port: int) -> str | None:
    """The interface through which this machine reaches another; `None` if unknown."""
    with contextlib.suppress(OSError):
        return interface_of(own_address(host, port))
    return None


def own_address(host: str, port: int) -> str:
    """The IPv4 address of this machine that another sees.

    Raises:
        OSError: The other is unknown, or there is no way to it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))  # sends nothing
        found: str = probe.getsockname()[0]
    return found


class ReservedPorts:
    """Ports that are reserved from `take` to `close`.

    A socket bound with SO_REUSEPORT, which never listens, holds each port. Only a server of the same user that sets
    this option too, as gRPC's do, can bind the port. It holds the port on all addresses, because gRPC's servers bind
    it on all: one that is free on 127.0.0.1 alone may be taken on ::1.
    """

    def __init__(self) -> None:
        self._holders: list[socket.socket] = []

    def take(self) -> int:
        """Reserves a free port."""
        of_both = socket.has_dualstack_ipv6()
        holder = socket.socket(socket.AF_INET6 if of_both else socket.AF_INET)
        self._holders.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if of_both:
            holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        holder.bind(("", 0))
        return int(holder.getsockname()[1])

    def close(self) -> None:
        """Releases all ports."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()


def creating_without_names(create: Callable[..., Any]) -> Callable[..., Any]:
    """The function that creates a store in `torch.distributed.rendezvous`, without the name server on this machine.

    A client of torch's store connects through a dual-stack socket, and looks up the name of its peer,
    `::ffff:127.0.0.1`. No hosts file contains that name, so each connection asks the name server. If the server does
    not answer (a laptop without its network), a launch waits for the resolver's 5 seconds again and again. glibc can be
    configured to look names up in files only, but for the whole process. So this lasts only while connecting, and is
    left out if other threads run, such as that of an experiment tracker, whose look-ups would fail. (For a single
    thread, one can only set that there is no server, but torch then prints a warning, and wrong addresses in its
    messages.)
    """
    lookup_configurer()  # once, for all forks of this process

    def create_without_names(hostname: str, *args: Any, **kwargs: Any) -> Any:
        with without_name_server(hostname):
            return create(hostname, *args, **kwargs)

    return create_without_names


@contextlib.contextmanager
def without_name_server(host: str) -> Iterator[None]:
    """In the block, names are looked up only in files, if `host` is a loopback address and the system uses glibc.

    Does nothing while threads run that may look up names themselves.
    """
    configure = lookup_configurer() if host.startswith("127.") and _is_alone() else None
    if configure is None:
        yield
        return
    configure(b"hosts", b"files")
    try:
        yield
    finally:
        configure(b"hosts", _configured().encode())


@functools.cache
def lookup_configurer() -> Callable[[bytes, bytes], object] | None:
    """The function of glibc that sets where names are looked up; `None` in other systems."""
    return getattr(ctypes.CDLL(None), "__nss_configure_lookup", None)


def _is_alone() -> bool:
    """Whether no other thread of this process runs Python code, except this package's own."""
    others = (thread for thread in threading.enumerate() if thread is not threading.current_thread())
    return all(thread.name.startswith(OWN_THREADS) for thread in others)


def _configured() -> str:
    try:
        found = _HOSTS.search(CONFIGURATION.read_text())
    except OSError:
        found = None
    return found[1].strip() if found else _DEFAULT


_CREDENTIALS = struct.Struct("3i")


def credentials(connection: socket.socket) -> tuple[int, int]:
    """The process ID and the user of the other end of a Unix socket (unix(7)).

    Raises:
        OSError: The system does not tell.
    """
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, user


class OwnerQuery:
    """Determines which user a connection to this machine's loopback interface comes from. One thread uses it.

    TCP has no `SO_PEERCRED`, but on loopback the other end is a socket of this machine, and Linux reports the owner of
    each (sock_diag(7)). Looking up one connection takes microseconds, unlike reading `/proc/net/tcp`.

    Raises:
        OSError: This system does not report owners.
    """

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("only Linux reports who owns a socket")
        self._netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG)

    def is_own(self, connection: socket.socket) -> bool:
        """Whether a process of this user has made a connection that was accepted on the loopback interface."""
        try:
            query = _query(connection.getpeername(), connection.getsockname())
            self._netlink.send(_HEADER.pack(_HEADER.size + len(query), _BY_FAMILY, _REQUEST, 0, 0) + query)
            answer = self._netlink.recv(4096)
        except OSError:
            return False  # it has gone
        if _HEADER.unpack_from(answer)[1] != _BY_FAMILY:
            return False
        state, owner, inode = _ANSWER.unpack_from(answer, _HEADER.size)
        # A socket that its process has closed has no inode, and counts as root's.
        return bool(state == _ESTABLISHED and inode and owner == os.geteuid())

    def close(self) -> None:
        self._netlink.close()


@functools.cache
def knows_owners() -> bool:
    """Whether owners can be looked up here: tried once, on a connection of this process to itself."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()),
            listener.accept()[0] as accepted,
        ):
            query = OwnerQuery()
            try:
                return query.is_own(accepted)
            finally:
                query.close()
    except OSError:
        return False


def _query(local: tuple[str, int], remote: tuple[str, int]) -> bytes:
    """The query for the socket with these addresses."""
    ports = [port.to_bytes(2, "big") for _, port in (local, remote)]
    addresses = [socket.inet_aton(host) for host, _ in (local, remote)]
    return _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, _ANY, *ports, *addresses, _ANY, _ANY)
