"""Gives a rank that is a thread of the notebook's process a rendezvous store in its own memory.

It is the only rank of its launch. A store that listens on a port would need a process that keeps other users out (see
`launch/server/store_guard.py`), and the notebook's process is never forked.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from notebook_accel.launch.wire.mirrored.on_import import replace, when_imported

_stores: dict[tuple[str, int], Callable[[], Any]] = {}
"""What makes, once, the store of each address at which a rank is alone."""


@contextlib.contextmanager
def at(host: str, port: int) -> Iterator[None]:
    """In the block, a process group that is joined at this address is one of this process alone."""
    when_imported({"torch.distributed.rendezvous": _patch})
    _stores[host, port] = functools.cache(lambda: sys.modules["torch.distributed"].HashStore())
    try:
        yield
    finally:
        del _stores[host, port]


def _patch(rendezvous: Any) -> None:
    replace(rendezvous, "_create_c10d_store", _with_own_stores)


def _with_own_stores(create: Callable[..., Any]) -> Callable[..., Any]:
    def create_or_find(hostname: str, port: int, *args: Any, **kwargs: Any) -> Any:
        own = _stores.get((hostname, port))
        return create(hostname, port, *args, **kwargs) if own is None else own()

    return create_or_find
