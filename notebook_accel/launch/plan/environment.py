"""The environment of each rank: RANK, WORLD_SIZE, MASTER_ADDR and the rest."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_accel.config import environment
from notebook_accel.launch.engines import nodes
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.plan import other_frameworks
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.system import interfaces


def of_ranks(plan: Plan, rendezvous: Rendezvous, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The whole environment of each rank: the notebook's, the launch's, and what the user added, in this order.

    Variables that only some frameworks read come from the table in `other_frameworks.py`, and override none of these.
    """
    config = plan.config
    shared = nodes.shared_environment(environ) if plan.node_request else dict(environ)
    shared |= {
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(plan.local_size),
        "GROUP_WORLD_SIZE": str(config.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(plan.world_size),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(rendezvous.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store already listens, so rank 0 must not open one
        "NOTEBOOK_ACCEL_DEVICE": plan.device,
        "NOTEBOOK_ACCEL_BACKEND": plan.backend,
        **plan.device_environ,
    }
    shared.setdefault("OMP_NUM_THREADS", str(plan.threads))
    shared |= environment.rank_environment(config, environ)
    if plan.device == "cpu":
        shared |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    else:
        shared.pop(
            "ACCELERATE_USE_CPU", None
        )  # the notebook's own, which a setting of higher precedence has overridden
    if plan.visible_gpus:
        shared["CUDA_VISIBLE_DEVICES"] = plan.visible_gpus
        shared.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if not rendezvous.opened_by_engine:
        shared |= {"MASTER_ADDR": rendezvous.host, "MASTER_PORT": str(rendezvous.port)}
        here = rendezvous.num_nodes == 1
        interface = (
            interfaces.of(interfaces.LOOPBACK) if here else interfaces.route_to(rendezvous.host, rendezvous.port)
        )
        if interface:
            # Otherwise gloo takes whatever the host's name resolves to, and both listen beyond this machine.
            shared.setdefault("GLOO_SOCKET_IFNAME", interface)
            shared.setdefault("NCCL_SOCKET_IFNAME", interface)
    shared |= config.env
    return [
        {
            **shared,
            **own,
            "RANK": str(plan.first_rank + number),
            "LOCAL_RANK": str(number % plan.local_size),
            "GROUP_RANK": str(config.node_rank + number // plan.local_size),
            "ROLE_RANK": str(plan.first_rank + number),
        }
        for number, own in enumerate(other_frameworks.variables(plan.size, plan.device, rendezvous, shared))
    ]
