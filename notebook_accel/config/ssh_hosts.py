"""The address of a cluster of machines that are reached by ssh: `ssh://HOST1,USER@HOST2:PORT`."""

from __future__ import annotations

import re
from collections import Counter

from notebook_accel.errors import ConfigurationError

PREFIX = "ssh://"
_TARGET = re.compile(r"(?:[A-Za-z_][\w.-]*@)?(?P<host>[A-Za-z0-9][\w.-]*|\[[0-9A-Fa-f:]+\])(?::(?P<port>\d{1,5}))?")
"""`USER@HOST:PORT`. Neither begins with a hyphen, which `ssh` would take for an option."""


def of(address: str) -> tuple[str, ...]:
    """The hosts of an address, as it writes them, with user and port; none for another cluster."""
    return tuple(address.removeprefix(PREFIX).split(",")) if address.startswith(PREFIX) else ()


def host(target: str) -> str:
    """The host alone, without the user and the port."""
    found = _TARGET.fullmatch(target)
    return found["host"] if found else target


def _port(target: str) -> int | None:
    found = _TARGET.fullmatch(target)
    return int(found["port"]) if found and found["port"] else None


def check(name: str, address: str) -> None:
    """Raises `ConfigurationError` if it is not a list of hosts."""
    targets = of(address)
    if wrong := [target for target in targets if not _TARGET.fullmatch(target)]:
        raise ConfigurationError(
            f"{name}={address!r} is not a list of hosts: {wrong[0]!r} is not a host. Write 'ssh://HOST1,USER@HOST2:PORT'"
        )
    if wrong := [target for target in targets if (port := _port(target)) is not None and not 0 < port < 65536]:
        raise ConfigurationError(f"{name}={address!r}: {wrong[0]!r} has no such port: ports are 1 to 65535")
    if twice := [target for target, times in Counter(targets).items() if times > 1]:
        raise ConfigurationError(f"{name}={address!r} names {twice[0]} twice: write each machine once")
