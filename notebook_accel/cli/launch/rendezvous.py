"""Makes the options for torch's launcher by which ranks find each other, on one machine or on several."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from notebook_accel.config import DEFAULT_PORT, LaunchConfig
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.system import network

ONE_NODE = "one-node"
"""The rendezvous of a launch on a single machine; see `loopback_rendezvous.py`."""
LOOPBACK_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Rendezvous:
    """A rendezvous, described for torch's launcher and for the ranks."""

    options: tuple[str, ...]
    """Options of torch's launcher."""
    interface: str | None
    """The network interface on which the ranks reach each other, if it is known."""


def rendezvous(config: LaunchConfig, conf: str | None, size: int) -> Rendezvous:
    """Returns the rendezvous for the settings.

    Args:
        config: The settings.
        conf: More options for torch's launcher, from `--rdzv_conf`.
        size: The number of ranks on each machine.

    Raises:
        ConfigurationError: The ranks cannot meet there.
    """
    port = config.port if "port" in config.sources else None
    if config.num_nodes == 1:
        if conf:
            raise ConfigurationError("--rdzv_conf has no effect on a single machine: leave it out")
        return _one_machine(port)
    if "master_addr" not in config.sources:
        raise ConfigurationError(
            f"--num_machines {config.num_nodes} needs --main_process_ip: the address of the machine with rank 0"
        )
    return _several_machines(config, conf, port or DEFAULT_PORT, size)


def _one_machine(port: int | None) -> Rendezvous:
    loopback = network.interface_of(network.LOOPBACK)
    if port:
        _refuse_taken(LOOPBACK_HOST, port)
    return Rendezvous((f"--rdzv-backend={ONE_NODE}", f"--rdzv-endpoint={LOOPBACK_HOST}:{port or 0}"), loopback)


def _several_machines(config: LaunchConfig, more: str | None, port: int, size: int) -> Rendezvous:
    nodes, address, by_name = config.num_nodes, config.master_addr, config.rdzv_backend == "c10d"
    if "node_rank" not in config.sources and not by_name:
        raise ConfigurationError(
            f"--num_machines {nodes} needs --machine_rank, a different one on each machine, from 0; or "
            "--rdzv_backend c10d, which needs none"
        )
    own = _own_address(address, port)
    conf = [more] if more else []
    if by_name:
        where = ("--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{port}", f"--local-addr={own}")
        conf += _host_options(own, address)
    else:
        if config.node_rank == 0:
            _refuse_taken("", port)
        where = (f"--node-rank={config.node_rank}", f"--master-addr={address}", f"--master-port={port}")
    fewest = "" if config.min_processes is None or not by_name else f"{-(-config.min_processes // size)}:"
    options = [f"--nnodes={fewest}{nodes}", *where, *([f"--rdzv-conf={','.join(conf)}"] if conf else [])]
    return Rendezvous(tuple(options), network.interface_of(own))


def _own_address(address: str, port: int) -> str:
    """This machine's address, as the first machine sees it."""
    try:
        return network.own_address(address, port)
    except OSError as error:
        raise ConfigurationError(
            f"--main_process_ip {address} cannot be reached from this machine: {error.strerror}. Give the address "
            "by which the others can reach the first machine."
        ) from None


def _host_options(own: str, address: str) -> list[str]:
    """Decides which machine hosts the store. Torch would look up this machine's name, which may not resolve."""
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
                    "another; on a single machine, leave it out to use any free port"
                ) from None
            raise ConfigurationError(f"--main_process_port {port} cannot be used: {error.strerror}") from None
