"""Where the ranks of a launch meet: a socket of this machine, or one of another that is known beforehand."""

from __future__ import annotations

import errno
import socket
import time

from notebook_accel.config import DEFAULT_PORT, LaunchConfig
from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.contract import Meeting
from notebook_accel.launch.system.interfaces import LOOPBACK

_BACKLOG = 4096
_PORT_PATIENCE = 2.0
"""Seconds to wait for a port that is taken."""


def meet(config: LaunchConfig, attempt: int) -> Meeting:
    """Opens the socket on which the ranks will meet. It listens from now on, so no port is ever lost to a race.

    A cluster's machines do that themselves.

    Raises:
        LaunchError: The port is taken, or the address is not one of this machine.
    """
    if config.cluster:
        return Meeting(
            host="",
            port=0,
            listener=None,
            num_nodes=config.num_nodes,
            run_id=config.run_id,
            attempt=attempt,
            is_arranged=True,
        )
    listener = None
    host, port = config.master_addr, config.port
    if config.num_nodes == 1:
        host, port = LOOPBACK, 0 if port == DEFAULT_PORT else port
    if config.node_rank == 0:
        listener = _listen(host, port)
        port = listener.getsockname()[1]
    return Meeting(
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
            advice = (
                "that is no address of this machine; the machine with node_rank=0 is the one that master_addr names"
            )
        else:
            advice = str(error)
        raise LaunchError(f"the ranks can't meet at {host}:{port}: {advice}") from error
    return listener


def _bind(listener: socket.socket, address: tuple[str, int]) -> None:
    """Binds; waits a moment for a port that the store of a launch before is about to leave."""
    deadline = time.monotonic() + _PORT_PATIENCE
    while True:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
            time.sleep(_PORT_PATIENCE / 40)
        else:
            return
