"""What each rank finds in its environment."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_accel.config import environment
from notebook_accel.launch.engines import nodes
from notebook_accel.launch.engines.contract import Meeting
from notebook_accel.launch.plan import other_frameworks
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.system import interfaces


def of_ranks(plan: Plan, meeting: Meeting, environ: Mapping[str, str]) -> list[dict[str, str]]:
    """The whole environment of each rank: the notebook's, the launch's, and what the user added, in this order.

    What only some frameworks read comes from the table of `rendezvous`, and gives way to all of them.
    """
    config = plan.config
    shared = nodes.shared_environment(environ) if plan.machines else dict(environ)
    shared |= {
        "WORLD_SIZE": str(plan.world_size),
        "LOCAL_WORLD_SIZE": str(plan.local_size),
        "GROUP_WORLD_SIZE": str(config.num_nodes),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(plan.world_size),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(meeting.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is there already, and no rank has to host it
        "NOTEBOOK_ACCEL_DEVICE": plan.device,
        "NOTEBOOK_ACCEL_BACKEND": plan.backend,
        **plan.told,
    }
    shared.setdefault("OMP_NUM_THREADS", str(plan.threads))
    shared |= environment.rank_environment(config, environ)
    if plan.device == "cpu":
        shared |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    else:
        shared.pop("ACCELERATE_USE_CPU", None)  # the notebook's own, which something higher has overruled
    if plan.visible_gpus:
        shared["CUDA_VISIBLE_DEVICES"] = plan.visible_gpus
        shared.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if not meeting.is_arranged:
        shared |= {"MASTER_ADDR": meeting.host, "MASTER_PORT": str(meeting.port)}
        here = meeting.num_nodes == 1
        interface = interfaces.of(interfaces.LOOPBACK) if here else interfaces.route_to(meeting.host, meeting.port)
        if interface:
            # Otherwise gloo takes whatever the host's name resolves to, and both listen beyond this machine.
            shared.setdefault("GLOO_SOCKET_IFNAME", interface)
            shared.setdefault("NCCL_SOCKET_IFNAME", interface)
    shared |= config.env
    return [
        {
            **shared,
            **told,
            "RANK": str(plan.first + number),
            "LOCAL_RANK": str(number % plan.local_size),
            "GROUP_RANK": str(config.node_rank + number // plan.local_size),
            "ROLE_RANK": str(plan.first + number),
        }
        for number, told in enumerate(other_frameworks.variables(plan.size, plan.device, meeting, shared))
    ]
