"""How the ranks of a launch meet, on one machine or on several."""

from __future__ import annotations

import errno
import socket

from notebook_accel.cli.choices import Choices
from notebook_accel.config import DEFAULT_PORT
from notebook_accel.config.settings import LOOPBACK
from notebook_accel.errors import ConfigurationError

ONE_NODE = "one-node"
"""The rendezvous of ranks that have this machine to themselves; `one_node.py` has it."""
HERE = "127.0.0.1"


def meeting(choices: Choices, machines: int) -> tuple[str, ...]:
    """The options of torch's launcher that say where.

    Raises:
        ConfigurationError: The ranks cannot meet there.
    """
    port = choices.get("main_process_port")
    address = choices.get("main_process_ip")
    if port is not None and port > 65535:
        raise ConfigurationError(f"--main_process_port {port}: ports are 0 to 65535")
    if machines == 1:
        if address not in (None, *LOOPBACK):
            raise ConfigurationError(
                f"--main_process_ip {address} has no effect on one machine, which talks to itself on the loopback "
                "interface: leave it out, or give --num_machines"
            )
        if not port:
            return (f"--rdzv-backend={ONE_NODE}",)  # on a port that is free
        _refuse_taken(HERE, port)
        return f"--master-addr={HERE}", f"--master-port={port}"
    if not address:
        raise ConfigurationError(
            f"--num_machines {machines} needs --main_process_ip: the address of the machine with rank 0"
        )
    if port == 0:
        raise ConfigurationError(
            "--main_process_port 0 stands for any free port, which the other machines can't know: give one that is "
            "free on the first machine"
        )
    port = port or DEFAULT_PORT
    rank = choices.get("machine_rank")
    if choices.get("rdzv_backend") == "c10d":
        return f"--nnodes={machines}", "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}"
    if rank is None:
        raise ConfigurationError(
            f"--num_machines {machines} needs --machine_rank, a different one on each machine, from 0; or "
            "--rdzv_backend c10d, which needs none"
        )
    if rank == 0:
        _refuse_taken("", port)
    return f"--nnodes={machines}", f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={port}"


def _refuse_taken(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigurationError(
                    f"--main_process_port {port} is in use by another program, perhaps an earlier launch: choose "
                    "another; on one machine leave it out, and a free one is found"
                ) from None
            raise ConfigurationError(f"--main_process_port {port} cannot be used: {error.strerror}") from None
