"""Ports for servers that a test starts later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_DEFAULT = 29500
"""The port that stands for any free one on a single machine."""


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens, and which the system gives no connection either.

    A client that connects to a port of the ephemeral range before its server listens may get that very port, and is
    then connected to itself. When it closes the connection, the system keeps the port from the server for 60 s.
    """
    ephemeral = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 32768
    found: list[int] = []
    for port in random.sample(range(_LOWEST, ephemeral), ephemeral - _LOWEST):
        if len(found) == count:
            break
        if port != _DEFAULT and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
