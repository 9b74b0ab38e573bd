"""How the ranks of one machine meet under torch's elastic launcher: at once, and on the loopback interface alone.

torch's own way, `--standalone`, is that of many machines: it waits for up to 0.3 s lest all of them come at once, notes
each step, and listens on every interface. See torch.distributed.elastic.rendezvous.
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

from notebook_accel.cli.launch.rendezvous import HERE, ONE_NODE
from notebook_accel.launch.server import store

_TIMEOUT = 600.0
"""Seconds that an operation on the store may take, as torch has it for machines that are numbered."""


class OneNode(RendezvousHandler):
    """The rendezvous of a machine that waits for no other."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._run_id = parameters.run_id
        self._store: Store | None = None
        self._is_closed = False

    def get_backend(self) -> str:
        return ONE_NODE

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Opens a store for one attempt; the one before ends with its ranks."""
        with socket.create_server((HERE, 0)) as listener:
            port = listener.getsockname()[1]
            asked = {"host": HERE, "port": port, "join_timeout": _TIMEOUT}
            self._store = store.host(asked, listener.detach())
        return RendezvousInfo(PrefixStore(self._run_id, self._store), 0, 1, RendezvousStoreInfo(HERE, port))

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
    """Makes it known to torch's launcher, under its name."""
    rendezvous_handler_registry.register(ONE_NODE, OneNode)
