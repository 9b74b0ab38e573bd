"""The ways to start agents on nodes. A new one is a new file, and a row in `LAUNCHERS`.

Each follows `AgentLauncher` (`../agent_launcher.py`): it finds nodes and starts agents, which connect by themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from notebook_accel.launch.cluster.agent_launcher import AgentLauncher


def _slurm(address: str, insecure: bool) -> AgentLauncher:
    from notebook_accel.launch.cluster.launchers.slurm import SlurmLauncher

    return SlurmLauncher()


def _ssh(address: str, insecure: bool) -> AgentLauncher:
    from notebook_accel.launch.cluster.launchers.ssh import SshLauncher

    return SshLauncher(address)


def _ray(address: str, insecure: bool) -> AgentLauncher:
    from notebook_accel.launch.cluster.launchers.ray import RayLauncher

    return RayLauncher(address, insecure=insecure)


LAUNCHERS: dict[str, Callable[[str, bool], AgentLauncher]] = {
    "slurm": _slurm,
    "ssh://": _ssh,
    "": _ray,
}
"""By the beginning of the address."""


def make(address: str, *, insecure: bool) -> AgentLauncher:
    """The launcher for the cluster at an address."""
    return next(make for start, make in LAUNCHERS.items() if address.startswith(start))(address, insecure)
