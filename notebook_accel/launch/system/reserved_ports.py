"""Ports of this machine that are held free for servers that ranks start later."""

from __future__ import annotations

import socket


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
