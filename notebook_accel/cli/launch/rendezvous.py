"""How the ranks of a launch find each other, on one machine or on several: options for torch's launcher."""

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
"""The rendezvous of ranks that have this machine to themselves; see `loopback_rendezvous.py`."""
LOOPBACK_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Rendezvous:
    """A rendezvous, as torch's launcher and the ranks are given it."""

    options: tuple[str, ...]
    """Options of torch's launcher."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for the ranks, unless they are set already."""


def rendezvous(choices: Choices, machines: int) -> Rendezvous:
    """The rendezvous that the options ask for.

    Raises:
        ConfigurationError: The ranks cannot meet there.
    """
    port, address = choices.get("main_process_port"), choices.get("main_process_ip")
    if port is not None and port > 65535:
        raise ConfigurationError(f"--main_process_port {port}: ports are 0 to 65535")
    if machines == 1:
        return _one_machine(choices, address, port)
    if not address:
        raise ConfigurationError(
            f"--num_machines {machines} needs --main_process_ip: the address of the machine with rank 0"
        )
    if port == 0:
        raise ConfigurationError(
            "--main_process_port 0 stands for any free port, which the other machines can't know: give one that is "
            "free on the first machine"
        )
    return _several_machines(choices, machines, address, port or DEFAULT_PORT)


def _one_machine(choices: Choices, address: str | None, port: int | None) -> Rendezvous:
    if address not in (None, *LOOPBACK):
        raise ConfigurationError(
            f"--main_process_ip {address} has no effect on one machine, which talks to itself on the loopback "
            "interface: leave it out, or give --num_machines"
        )
    if choices.given.get("rdzv_conf"):
        raise ConfigurationError("--rdzv_conf has no effect on one machine, which waits for no other: leave it out")
    if not port:
        return Rendezvous((f"--rdzv-backend={ONE_NODE}", f"--rdzv-endpoint={LOOPBACK_HOST}"))  # at a port that is free
    _refuse_taken(LOOPBACK_HOST, port)
    return Rendezvous((f"--master-addr={LOOPBACK_HOST}", f"--master-port={port}"))


def _several_machines(choices: Choices, machines: int, address: str, port: int) -> Rendezvous:
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
        conf += _host_options(own, address)
    else:
        if rank == 0:
            _refuse_taken("", port)
        where = (f"--node-rank={rank}", f"--master-addr={address}", f"--master-port={port}")
    more = ",".join(filter(None, conf))
    return Rendezvous((f"--nnodes={machines}", *where, *([f"--rdzv-conf={more}"] if more else [])), environment)


def _own_address(address: str, port: int) -> str:
    """This machine's address, as the first machine sees it."""
    try:
        return interfaces.own_address(address, port)
    except OSError as error:
        raise ConfigurationError(
            f"--main_process_ip {address} cannot be reached from this machine: {error.strerror}. Give the address of "
            "the first machine that the others know it by."
        ) from None


def _host_options(own: str, address: str) -> list[str]:
    """Which machine hosts the store. Torch decides by looking up this machine's name, which may not resolve."""
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
