"""From a configuration and a cluster's machines to the ranks to start there, and what these have of the environment."""

from __future__ import annotations

from collections.abc import Sequence

from notebook_accel.config import DEFAULT_PORT, LaunchConfig
from notebook_accel.errors import ConfigurationError, HardwareError
from notebook_accel.hardware import DEFAULT_CPU_RANKS
from notebook_accel.launch.engines.contract import Machine, Machines, too_few

_DEVICES = ("cpu", "cuda")
_WITHOUT_EFFECT = {
    "node_rank": 0,
    "master_addr": "127.0.0.1",
    "port": DEFAULT_PORT,
    "run_id": "none",
    "gpus": None,
    "rdzv_backend": "static",
}
"""Settings that a cluster sees to, and their defaults."""


def device(config: LaunchConfig, found: Sequence[Machine]) -> str:
    """What the ranks run on.

    Raises:
        ConfigurationError: Something that is no cluster's.
    """
    if config.device is not None:
        if config.device not in _DEVICES:
            raise ConfigurationError(
                f"device={config.device!r}{config.cite('device')} is not for a cluster: its ranks run on 'cpu' or "
                "'cuda'"
            )
        return config.device
    return "cuda" if sum(each.gpus > 0 for each in found) >= config.num_nodes else "cpu"


def size(config: LaunchConfig, device: str, found: Sequence[Machine]) -> int:
    """The number of all ranks.

    Raises:
        ConfigurationError: It can't be shared equally, or a setting has no effect.
    """
    for name, default in _WITHOUT_EFFECT.items():
        if getattr(config, name) != default:
            raise ConfigurationError(
                f"{name}={getattr(config, name)!r}{config.cite(name)} has no effect with cluster={config.cluster!r}: "
                "the cluster's machines find each other, and it gives out their GPUs. Leave it out."
            )
    if config.insecure and config.cluster == "slurm":
        raise ConfigurationError(
            f"insecure=True{config.cite('insecure')} has no effect with cluster='slurm', whose agents always prove who "
            "they are. Leave it out."
        )
    nodes = config.num_nodes
    if config.num_processes is None:
        has = sorted(each.gpus if device == "cuda" else min(each.cpus, DEFAULT_CPU_RANKS) for each in found)[-nodes:]
        return nodes * max(1, has[0] if has else 1)
    if config.num_processes % nodes:
        raise ConfigurationError(
            f"num_processes={config.num_processes}{config.cite('num_processes')} ranks can't be shared equally by "
            f"num_nodes={nodes}{config.cite('num_nodes')} machines: with cluster=, num_processes counts the ranks on "
            "all machines"
        )
    return config.num_processes


def machines(config: LaunchConfig, device: str, size: int, found: Sequence[Machine]) -> Machines:
    """What is needed of the cluster.

    Raises:
        HardwareError: It has less.
    """
    each = size // config.num_nodes
    wanted = Machines(config.num_nodes, cpus=1, gpus=each) if device == "cuda" else Machines(config.num_nodes, each)
    fit = [one for one in found if one.cpus >= wanted.cpus and one.gpus >= wanted.gpus]
    if len(fit) < wanted.count:
        raise HardwareError(too_few(wanted, found))
    return wanted


def place(wanted: Machines) -> str:
    """What the ranks run on, in words."""
    return f"{wanted.count} machine{'s' if wanted.count > 1 else ''} with {wanted}{' each' if wanted.count > 1 else ''}"
