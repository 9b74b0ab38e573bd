"""The network interfaces of this machine, by address."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

_SIOCGIFADDR = 0x8915
LOOPBACK = "127.0.0.1"


def of(address: str) -> str | None:
    """The interface that has this IPv4 address; `None` if unknown."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                reply = fcntl.ioctl(query, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return "lo0" if os.uname().sysname == "Darwin" and address == LOOPBACK else None


def route_to(host: str, port: int) -> str | None:
    """The interface through which this machine reaches another; `None` if unknown."""
    with contextlib.suppress(OSError):
        return of(own_address(host, port))
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
