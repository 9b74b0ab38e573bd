"""Keeps the name server out of a rendezvous on this machine.

A client of torch's store connects through a dual-stack socket, and looks up the name of its peer, `::ffff:127.0.0.1`.
No hosts file contains that name, so each connection asks the name server. If the server does not answer (a laptop
without its network), a launch waits for the resolver's 5 seconds again and again. glibc can be configured to look names
up in files only, but for the whole process. So this lasts only while connecting, and is left out if other threads run,
such as that of an experiment tracker, whose look-ups would fail. (For a single thread, one can only set that there is
no server, but torch then prints a warning, and wrong addresses in its messages.)
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CONFIGURATION = Path("/etc/nsswitch.conf")
"""Where the system's order of look-ups is configured."""
_HOSTS = re.compile(r"^hosts:([^#\n]*)", re.MULTILINE)
OWN_THREADS = "notebook-accel"
"""How the names of this package's threads begin. None of them looks up names while ranks connect."""
_DEFAULT = "dns [!UNAVAIL=return] files"
"""Where glibc looks without a configuration, nsswitch.conf(5)."""


def patch_rendezvous(rendezvous: Any) -> None:
    """Has `torch.distributed.rendezvous` join a store on this machine without the name server, if it does not yet."""
    create: Callable[..., Any] = rendezvous._create_c10d_store
    if hasattr(create, "_accel_patched"):
        return
    lookup_configurer()  # once, for all forks of this process

    def create_without_names(hostname: str, *args: Any, **kwargs: Any) -> Any:
        with without_name_server(hostname):
            return create(hostname, *args, **kwargs)

    create_without_names._accel_patched = True  # type: ignore[attr-defined]
    rendezvous._create_c10d_store = create_without_names


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
