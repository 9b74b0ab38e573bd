"""Starts agents with one Ray actor on each node. Ray finds and reserves the nodes, and starts the processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from notebook_accel.launch.cluster import agent_launcher
from notebook_accel.launch.cluster.agent_launcher import ClusterError, Order
from notebook_accel.launch.cluster.launchers import ray_advice, ray_join
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest

_ALLOCATION_TIMEOUT = 60.0
"""Seconds to wait for nodes that are in use."""
_CHECK_INTERVAL = 2.0
_LITTLE = 0.001
"""Of the resource that each node of Ray has one of, by which an actor is bound to it."""


class RayLauncher:
    """The cluster at an address.

    Args:
        address: `auto`, `host:port` or `ray://host:port`.
        insecure: Whether a cluster that requires no token is allowed.
    """

    def __init__(self, address: str, *, insecure: bool) -> None:
        self._address = address
        self._insecure = insecure

    def connect(self, timeout: float) -> None:
        ray_join.join(self._address, insecure=self._insecure, timeout=timeout)

    def survey(self) -> list[NodeInfo]:
        return ray_join.survey()

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> _Actors:
        # Ray chooses, unless it would choose a node that shuts down, which it does not know yet.
        chosen = [node.address for node in nodes] if request.excluded else []
        started = _Actors(self._address, request, chosen)
        try:
            started.start(order)
        except Exception as error:
            started.stop()
            raise ray_advice.to_cluster_error(self._address, error) from error
        return started


class _Actors:
    """One actor on each node, and the placement group that reserves the nodes.

    Args:
        address: The cluster's.
        request: The nodes.
        chosen: The addresses of the nodes to use; by default, Ray chooses.
    """

    def __init__(self, address: str, request: NodeRequest, chosen: Sequence[str] = ()) -> None:
        from ray.util.placement_group import placement_group

        self._address = address
        self._request = request
        bundle: dict[str, float] = {"CPU": request.cpus, **({"GPU": request.gpus} if request.gpus else {})}
        bundles = [{**bundle, f"node:{node}": _LITTLE} for node in chosen[: request.count]]
        self._reserved = placement_group(bundles or [bundle] * request.count, strategy="STRICT_SPREAD")
        self._actors: list[Any] = []
        self._runs: list[Any] = []
        """What becomes ready as an agent ends."""

    def start(self, order: Order) -> None:
        """Starts an agent on each node, as soon as all of them are free."""
        self._wait_for_nodes()
        self._actors = [self._actor(index) for index in range(self._request.count)]
        self._runs = [actor.run.remote({**order, "node": str(index)}) for index, actor in enumerate(self._actors)]

    def check(self) -> None:
        import ray

        ended, _ = ray.wait(self._runs, timeout=0)
        if ended:
            try:
                ray.get(ended)
            except Exception as error:
                raise ray_advice.to_cluster_error(self._address, error) from error
            raise ClusterError("an agent has ended before the launch began: launch again")

    def stop(self) -> None:
        import ray
        from ray.util.placement_group import remove_placement_group

        for actor in self._actors:
            ray.kill(actor)
        remove_placement_group(self._reserved)

    def _wait_for_nodes(self) -> None:
        """Waits for nodes that are in use, but not for one that Ray finds to be gone in the meantime."""
        deadline = time.monotonic() + _ALLOCATION_TIMEOUT
        while not self._reserved.wait(_CHECK_INTERVAL):
            agent_launcher.fitting(self._request, ray_join.survey())
            if time.monotonic() > deadline:
                raise ClusterError(ray_advice.busy(self._request, _ALLOCATION_TIMEOUT))

    def _actor(self, index: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        make: Any = ray.remote(RayAgent)
        return make.options(
            num_cpus=self._request.cpus,
            num_gpus=self._request.gpus,
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._reserved, placement_group_bundle_index=index),
        ).remote()


class RayAgent:
    """The actor that hosts an agent on a node."""

    def run(self, order: Order) -> None:
        """Runs the agent until its connection to the bridge ends."""
        import ray

        # Ray adds folders with its own copies of packages for its workers. Our child processes must not use them.
        own = os.path.dirname(ray.__file__) + os.sep
        sys.path[:] = [folder for folder in sys.path if not folder.startswith(own)]
        from notebook_accel.launch.cluster.agent import main

        main.run(order)
