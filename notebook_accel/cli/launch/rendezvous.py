"""How the ranks of a launch meet, on one machine or on several."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from notebook_accel.cli.launch.choices import Choices
from notebook_accel.config import DEFAULT_PORT
from notebook_accel.config.settings import LOOPBACK
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.system import interfaces

ONE_NODE = "one-node"
"""The rendezvous of ranks that have this machine to themselves; `one_node.py` has it."""
HERE = "127.0.0.1"


@dataclass(frozen=True)
class Meeting:
    """What is told of it."""

    options: tuple[str, ...]
    """To torch's launcher."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """To the ranks, unless they have it already."""


def meeting(choices: Choices, machines: int) -> Meeting:
    """Where the ranks meet.

    Raises:
        ConfigurationError: They cannot meet there.
    """
    port, address = choices.get("main_process_port"), choices.get("main_process_ip")
    if port is not None and port > 65535:
        raise ConfigurationError(f"--main_process_port {port}: ports are 0 to 65535")
    if machines == 1:
        return _alone(choices, address, port)
    if not address:
        raise ConfigurationError(
            f"--num_machines {machines} needs --main_process_ip: the address of the machine with rank 0"
        )
    if port == 0:
        raise ConfigurationError(
            "--main_process_port 0 stands for any free port, which the other machines can't know: give one that is "
            "free on the first machine"
        )
    return _together(choices, machines, address, port or DEFAULT_PORT)


def _alone(choices: Choices, address: str | None, port: int | None) -> Meeting:
    if address not in (None, *LOOPBACK):
        raise ConfigurationError(
            f"--main_process_ip {address} has no effect on one machine, which talks to itself on the loopback "
            "interface: leave it out, or give --num_machines"
        )
    if choices.given.get("rdzv_conf"):
        raise ConfigurationError("--rdzv_conf has no effect on one machine, which waits for no other: leave it out")
    if not port:
        return Meeting((f"--rdzv-backend={ONE_NODE}", f"--rdzv-endpoint={HERE}"))  # at a port that is free
    _refuse_taken(HERE, port)
    return Meeting((f"--master-addr={HERE}", f"--master-port={port}"))


def _together(choices: Choices, machines: int, address: str, port: int) -> Meeting:
    rank, by_name = choices.get("machine_rank"), choices.get("rdzv_backend") == "c10d"
    if rank is None and not by_name:
        raise ConfigurationError(
            f"--num_machines {machines} needs --machine_rank, a different one on each machine, from 0; or "
            "--rdzv_backend c10d, which needs none"
        )
    own = _own_address(address, port)
    interface = interfaces.of(own)
    # Otherwise gloo takes whatever the host's name resolves to, if it does.
    environment = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    conf = [choices.get("rdzv_conf")]
    if by_name:
        where = ("--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}", f"--local-addr={own}")
        conf += _hosting(own, address)
    else:
        if rank == 0:
            _refuse_taken("", port)
        where = (f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={port}")
    more = ",".join(filter(None, conf))
    return Meeting((f"--nnodes={machines}", *where, *([f"--rdzv-conf={more}"] if more else [])), environment)


def _own_address(address: str, port: int) -> str:
    """Under which the first machine sees this one."""
    try:
        return interfaces.own_address(address, port)
    except OSError as error:
        raise ConfigurationError(
            f"--main_process_ip {address} cannot be reached from this machine: {error.strerror}. Give the address of "
            "the first machine that the others know it by."
        ) from None


def _hosting(own: str, address: str) -> list[str]:
    """Who opens the store, where torch could not tell: it looks up this machine's name, which may be unknown."""
    if own != socket.gethostbyname(address):
        return ["is_host=false"]
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return ["is_host=true"]
    return []


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
