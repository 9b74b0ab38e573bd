"""Determines which user a connection to this machine's loopback interface comes from.

TCP has no `SO_PEERCRED`, but on loopback the other end is a socket of this machine, and Linux reports the owner of each
(sock_diag(7)). Looking up one connection takes microseconds, unlike reading `/proc/net/tcp`.
"""

from __future__ import annotations

import functools
import os
import socket
import struct
import sys

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


class OwnerQuery:
    """Looks up owners of connections. One thread uses it.

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
def is_known() -> bool:
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
