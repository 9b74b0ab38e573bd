"""The environment of each rank: `of_ranks` makes all of it, `of_launch` the part that every launcher shares."""

from __future__ import annotations

import time
from collections.abc import Mapping

from notebook_accel.config import LaunchConfig, durations, environment_variables
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.plan import other_frameworks
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.system import network
from notebook_accel.launch.system.node_environment import shared_environment
from notebook_accel.launch.wire.constants import recorder_size


def of_ranks(plan: Plan, rendezvous: Rendezvous, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The whole environment of each rank: the notebook's, the launch's, and the user's additions, in this order.

    Variables that only some frameworks read come from the table in `other_frameworks.py`, and override none of these.
    """
    config = plan.config
    inherited = shared_environment(environ) if plan.node_request else dict(environ)
    interface = None if rendezvous.opened_by_engine else _interface(rendezvous)
    shared = {
        **inherited,
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(plan.local_size),
        "GROUP_WORLD_SIZE": str(config.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(plan.world_size),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(rendezvous.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store already listens, so rank 0 must not open one
    }
    if not rendezvous.opened_by_engine:
        shared |= {"MASTER_ADDR": rendezvous.host, "MASTER_PORT": str(rendezvous.port)}
    shared |= of_launch(plan, inherited, interface)
    ports = rendezvous.ports if rendezvous.num_nodes == 1 and not rendezvous.opened_by_engine else None
    return [
        {
            **shared,
            **own,
            "RANK": str(plan.first_rank + number),
            "LOCAL_RANK": str(number % plan.local_size),
            "GROUP_RANK": str(config.node_rank + number // plan.local_size),
            "ROLE_RANK": str(plan.first_rank + number),
        }
        for number, own in enumerate(other_frameworks.variables(plan.size, plan.device, ports, shared))
    ]


def of_launch(plan: Plan, environ: Mapping[str, str], interface: str | None) -> dict[str, str]:
    """The variables that all ranks of a launch get, whether an engine or torch's elastic launcher starts them.

    Args:
        plan: Where they run.
        environ: The environment that they inherit. Variables that the user has set there stay, unless a setting
            overrides them.
        interface: The network interface on which they reach each other, if it is known.
    """
    found = {"OMP_NUM_THREADS": str(plan.threads), **recorder_size(environ)}
    if interface:
        # Otherwise gloo uses the address that the host's name resolves to, and both listen beyond this machine.
        found |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    if plan.device == "cuda":
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the driver numbers them; CUDA's own order has the fastest first
    found = {name: value for name, value in found.items() if name not in environ}
    found |= {"NOTEBOOK_ACCEL_DEVICE": plan.device, "NOTEBOOK_ACCEL_BACKEND": plan.backend, **plan.device_environ}
    found |= environment_variables.rank_environment(plan.config, environ)
    if plan.device == "cpu":
        found["ACCELERATE_USE_CPU"] = "true"
    elif "ACCELERATE_USE_CPU" in environ:
        found["ACCELERATE_USE_CPU"] = "false"  # a setting of higher precedence has overridden it
    return found | dict(plan.config.env)


def of_job(id: str) -> dict[str, str]:
    """The variable that names the job of a rank."""
    return {"NOTEBOOK_ACCEL_JOB": id}


def of_time_limit(config: LaunchConfig) -> dict[str, str]:
    """The variable that says when a training run ends, if the launch begins now. A restart does not change it."""
    limit = durations.seconds(config.time_limit)
    return {} if limit is None else {"NOTEBOOK_ACCEL_STOP_AT": str(time.time() + limit)}


def _interface(rendezvous: Rendezvous) -> str | None:
    if rendezvous.num_nodes == 1:
        return network.interface_of(network.LOOPBACK)
    return network.interface_to(rendezvous.host, rendezvous.port)
