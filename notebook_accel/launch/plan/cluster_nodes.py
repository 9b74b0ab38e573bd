"""Chooses the device, the number of ranks and the nodes to request from a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from notebook_accel.config import DEFAULT_PORT, LaunchConfig, ssh_hosts
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import DEFAULT_CPU_RANKS
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest, not_enough_nodes
from notebook_accel.rank_spans import counted

_DEVICES = ("cpu", "cuda")
_WITHOUT_EFFECT = {
    "node_rank": 0,
    "master_addr": "127.0.0.1",
    "port": DEFAULT_PORT,
    "run_id": "none",
    "gpus": None,
    "rdzv_backend": "static",
}
"""Settings that the cluster determines, and their defaults."""
_AUTHENTICATED = ("slurm", "ssh://")
"""Clusters that admit no one without a proof."""


def with_all_hosts(config: LaunchConfig) -> LaunchConfig:
    """The configuration with all hosts of a list that `ssh` reaches, unless it says how many.

    Raises:
        ConfigurationError: It asks for more hosts than the list has.
    """
    hosts = ssh_hosts.of(config.cluster)
    if config.num_nodes > len(hosts) > 0:
        raise ConfigurationError(
            f"num_nodes={config.num_nodes}{config.cite('num_nodes')} is more than the {len(hosts)} hosts of "
            f"cluster={config.cluster!r}: add hosts, or leave num_nodes out"
        )
    unset = hosts and config.num_nodes == 1 and "num_nodes" not in config.sources
    return replace(config, num_nodes=len(hosts)) if unset else config


def device(config: LaunchConfig, nodes: Sequence[NodeInfo]) -> str:
    """The kind of device that the ranks run on.

    Raises:
        ConfigurationError: Ranks on a cluster cannot run on this device.
    """
    if config.device is not None:
        if config.device not in _DEVICES:
            raise ConfigurationError(
                f"device={config.device!r}{config.cite('device')} does not work on a cluster: its ranks run on 'cpu' "
                "or 'cuda'"
            )
        return config.device
    return "cuda" if sum(each.gpus > 0 for each in nodes) >= config.num_nodes else "cpu"


def size(config: LaunchConfig, device: str, nodes: Sequence[NodeInfo]) -> int:
    """The number of ranks on all nodes.

    Raises:
        ConfigurationError: The ranks can't be divided equally among the nodes, or a setting has no effect.
    """
    for name, default in _WITHOUT_EFFECT.items():
        if getattr(config, name) != default:
            raise ConfigurationError(
                f"{name}={getattr(config, name)!r}{config.cite(name)} has no effect with cluster={config.cluster!r}: "
                "the cluster connects its machines and assigns their GPUs. Leave it out."
            )
    if config.insecure and config.cluster.startswith(_AUTHENTICATED):
        raise ConfigurationError(
            f"insecure=True{config.cite('insecure')} has no effect with cluster={config.cluster!r}: only Ray clusters "
            "can be without a token. Leave it out."
        )
    count = config.num_nodes
    if config.num_processes is None:
        has = sorted(each.gpus if device == "cuda" else min(each.cpus, DEFAULT_CPU_RANKS) for each in nodes)[-count:]
        return count * max(1, has[0] if has else 1)
    if config.num_processes % count:
        raise ConfigurationError(
            f"num_processes={config.num_processes}{config.cite('num_processes')} ranks can't be divided equally among "
            f"num_nodes={count}{config.cite('num_nodes')} machines: with cluster=, num_processes counts the ranks on "
            "all machines"
        )
    return config.num_processes


def request(config: LaunchConfig, device: str, size: int, nodes: Sequence[NodeInfo]) -> NodeRequest:
    """The nodes that the ranks need.

    Raises:
        HardwareError: The cluster has fewer nodes.
    """
    each = size // config.num_nodes
    needed = (
        NodeRequest(config.num_nodes, cpus=1, gpus=each) if device == "cuda" else NodeRequest(config.num_nodes, each)
    )
    if sum(needed.fits(one) for one in nodes) < needed.count:
        raise HardwareError(not_enough_nodes(needed, nodes))
    return needed


def describe(needed: NodeRequest) -> str:
    """The nodes that the ranks run on, for messages."""
    return f"{counted(needed.count, 'machine')} with {needed}{' each' if needed.count > 1 else ''}"
