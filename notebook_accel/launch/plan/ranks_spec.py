"""The ranks of a plan, as an engine starts them."""

from __future__ import annotations

from collections.abc import Mapping

from notebook_accel.launch.engines.contract import RanksSpec
from notebook_accel.launch.plan import environment
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.plan.rendezvous import open_rendezvous
from notebook_accel.launch.wire.constants import Streams


def ranks_spec(
    plan: Plan, environ: Mapping[str, str], *, attempt: int = 0, streams: Streams = Streams.CALLS
) -> RanksSpec:
    """Opens the rendezvous of a plan's ranks, and returns what to start.

    Args:
        plan: The plan.
        environ: The environment that the ranks inherit.
        attempt: The number of the start, from 0.
        streams: Where the ranks' standard streams lead.

    Raises:
        LaunchError: The port is in use, or the address does not belong to this node.
    """
    rendezvous = open_rendezvous(plan.config, attempt)
    return RanksSpec(
        environments=environment.of_ranks(plan, rendezvous, environ),
        rendezvous=rendezvous,
        heartbeat=plan.config.heartbeat,
        node_request=plan.node_request,
        streams=streams,
    )
