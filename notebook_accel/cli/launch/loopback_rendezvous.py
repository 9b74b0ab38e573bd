"""A rendezvous for torch's elastic launcher on a single machine. It is immediate, and uses only loopback.

Torch's own, `--standalone`, is made for several machines: it waits for up to 0.3 s so that they don't all join at once,
logs each step, and listens on every interface. See torch.distributed.elastic.rendezvous.
"""

from __future__ import annotations

import socket

# Only the process of torch's launcher imports this module.
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]  # noqa: TID253
from torch.distributed.elastic.rendezvous import (  # noqa: TID253
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)

from notebook_accel.cli.launch.rendezvous import LOOPBACK_HOST, ONE_NODE
from notebook_accel.launch.server import store

_TIMEOUT = 600.0
"""Seconds that an operation on the store may take; the same as in torch's static rendezvous."""


class OneNode(RendezvousHandler):
    """A rendezvous with one member, which never waits."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._port = int(parameters.endpoint.rpartition(":")[2])
        self._store: Store | None = None
        self._is_closed = False

    def get_backend(self) -> str:
        return ONE_NODE

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Opens a store for one attempt, and closes the previous attempt's store, which may have the same port."""
        self._store = None
        with socket.create_server((LOOPBACK_HOST, self._port)) as listener:
            port = listener.getsockname()[1]
            options = {"host": LOOPBACK_HOST, "port": port, "join_timeout": _TIMEOUT}
            self._store = store.host(options, listener.detach())
        return RendezvousInfo(PrefixStore(self._run_id, self._store), 0, 1, RendezvousStoreInfo(LOOPBACK_HOST, port))

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        self._is_closed = True
        return True


def register() -> None:
    """Registers it with torch's launcher, as `--rdzv-backend=one-node`."""
    rendezvous_handler_registry.register(ONE_NODE, OneNode)
