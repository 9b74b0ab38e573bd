"""Opens the rendezvous of a launch: on a listening socket of this node, or at a known address of another node."""

from __future__ import annotations

import errno
import socket
import time

from notebook_accel.config import DEFAULT_PORT, LaunchConfig
from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.system.network import LOOPBACK

_BACKLOG = 4096
_PORT_TIMEOUT = 2.0
"""Seconds to wait for a port that is in use."""


def open_rendezvous(config: LaunchConfig, attempt: int) -> Rendezvous:
    """Opens the store's socket and listens on it at once, so that no other program can take the port.

    On a cluster, one of the nodes opens it instead.

    Raises:
        LaunchError: The port is in use, or the address does not belong to this node.
    """
    if config.cluster:
        return Rendezvous(
            host="",
            port=0,
            listener=None,
            num_nodes=config.num_nodes,
            run_id=config.run_id,
            attempt=attempt,
            opened_by_engine=True,
        )
    listener = None
    host, port = config.master_addr, config.port
    if config.num_nodes == 1:
        is_default = port == DEFAULT_PORT and not config.is_option("port")
        host, port = LOOPBACK, 0 if is_default else port
    if config.node_rank == 0:
        listener = _listen(host, port)
        port = listener.getsockname()[1]
    return Rendezvous(
        host=host,
        port=port,
        listener=listener,
        node_rank=config.node_rank,
        num_nodes=config.num_nodes,
        run_id=config.run_id,
        attempt=attempt,
        join_timeout=config.join_timeout,
    )


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(listener, (host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            advice = "another program uses it; choose another use_port, or 0 for any free one"
        elif error.errno == errno.EADDRNOTAVAIL:
            advice = "that is not an address of this machine; master_addr must be that of the machine with node_rank=0"
        else:
            advice = str(error)
        raise LaunchError(f"the ranks can't connect at {host}:{port}: {advice}") from error
    return listener


def _bind(listener: socket.socket, address: tuple[str, int]) -> None:
    """Binds the socket; waits briefly for a port that the previous launch's store is about to release."""
    deadline = time.monotonic() + _PORT_TIMEOUT
    while True:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(_PORT_TIMEOUT / 40)
        else:
            return
