"""The ways to start agents on nodes. A new one is a new file, and a row in `LAUNCHERS`.

Each follows `AgentLauncher` (`../agent_launcher.py`): it finds nodes and starts agents, which connect by themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from notebook_accel.launch.cluster.agent_launcher import AgentLauncher
from notebook_accel.launch.cluster.launchers.ray import RayLauncher
from notebook_accel.launch.cluster.launchers.slurm import SlurmLauncher
from notebook_accel.launch.cluster.launchers.ssh import SshLauncher

LAUNCHERS: dict[str, Callable[[str, bool], AgentLauncher]] = {
    "slurm": lambda address, insecure: SlurmLauncher(),
    "ssh://": lambda address, insecure: SshLauncher(address),
    "": lambda address, insecure: RayLauncher(address, insecure=insecure),
}
"""By the beginning of the cluster's address; the first that fits counts."""


def make(address: str, *, insecure: bool) -> AgentLauncher:
    """The launcher for the cluster at an address."""
    return next(make for beginning, make in LAUNCHERS.items() if address.startswith(beginning))(address, insecure)
