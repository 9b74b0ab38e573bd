"""The transports to a cluster, selected by its address. A new one is a new file, and a branch in `make()`."""

from __future__ import annotations

from notebook_accel.launch.cluster.transport import Transport


def make(address: str, *, insecure: bool) -> Transport:
    """The transport to the cluster at an address."""
    if address == "slurm":
        from notebook_accel.launch.cluster.transports.slurm import SlurmCluster

        return SlurmCluster()
    from notebook_accel.launch.cluster.transports.ray import RayCluster

    return RayCluster(address, insecure=insecure)
