"""Nodes of a Ray cluster: one actor on each, which hosts an agent. Ray places, starts and watches them."""

from __future__ import annotations

import importlib.util
import os
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from functools import partial
from typing import Any

from notebook_accel.launch.cluster import versions
from notebook_accel.launch.cluster.protocol import WAIT, Frame
from notebook_accel.launch.cluster.transport import ClusterError, Node
from notebook_accel.launch.cluster.transports import ray_advice
from notebook_accel.launch.engines import contract
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest

_OBJECT_STORE_FROM = 100_000
"""Bytes from which a blob is sent through the object store."""
_ALLOCATION_TIMEOUT = 60.0
"""Seconds to wait for nodes that are in use."""
_CHECK_INTERVAL = 2.0
_AGENT_TIMEOUT = 120.0
"""How many seconds an agent has to start."""
_SLOW_IMPORT = "rfc3987_syntax"
"""Ray imports jsonschema, which imports this optional package if Jupyter has installed it. It takes three seconds to
build a grammar for a format of addresses that Ray does not check."""
_LOCAL_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If 0, Ray does not look for an address at which others could reach this machine."""


class RayCluster:
    """The cluster at an address.

    Args:
        address: `auto`, `host:port` or `ray://host:port`.
        insecure: Whether a cluster that requires no token is allowed.
    """

    def __init__(self, address: str, *, insecure: bool) -> None:
        self._address = address
        self._insecure = insecure
        self._requests: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        threading.Thread(target=self._run_requests, name="asking", daemon=True).start()

    def _run_requests(self) -> None:
        """Sends requests, on its own thread because Ray's client, in a callback, would wait for itself."""
        while True:
            self._requests.get()()

    def connect(self, patience: float) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ClusterError(
                f"cluster={self._address!r} is reached through Ray, which is not installed: pip install "
                '"notebook-accel[cluster]"'
            )
        address = ray_advice.locate(self._address)
        ray_advice.check_token(self._address, address, insecure=self._insecure)
        ray_advice.check_reachable(address)
        if ray_advice.is_loopback(address):
            os.environ[_LOCAL_ONLY] = "0"
        sys.modules.setdefault(_SLOW_IMPORT, None)  # type: ignore[arg-type]  # importing it then raises ImportError, which jsonschema handles
        ray_advice.check_accepted(address)
        import ray

        try:
            if ray_advice.is_client(address):
                _within(patience, lambda: _join(address))
            else:
                _join(address)
        except TimeoutError as error:
            raise ClusterError(ray_advice.stuck(address, patience), again=True) from error
        except Exception as error:
            raise ClusterError(ray_advice.explain(address, error), again=ray_advice.is_stuck(error)) from error
        if not self._insecure and not ray_advice.has_token():
            others = [machine.address for machine in self.survey() if not ray_advice.is_loopback(machine.address)]
            if others:
                ray.shutdown()
                raise ClusterError(ray_advice.no_token(self._address))

    def survey(self) -> list[NodeInfo]:
        import ray

        found = [
            NodeInfo(
                str(node["NodeManagerHostname"]),
                str(node["NodeManagerAddress"]),
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("GPU", 0)),
            )
            for node in ray.nodes()
            if node["Alive"]
        ]
        return sorted(found, key=lambda machine: versions.order(machine.address, machine.host))

    def start(self, machines: NodeRequest, environ: Mapping[str, str]) -> tuple[Any, list[Node]]:
        from ray.util.placement_group import placement_group

        self._check(machines)
        bundle = {"CPU": machines.cpus, **({"GPU": machines.gpus} if machines.gpus else {})}
        placed = placement_group([bundle] * machines.count, strategy="STRICT_SPREAD")
        actors: list[Any] = []
        try:
            self._wait_for(placed, machines)
            actors += [_actor(placed, index, machines, environ) for index in range(machines.count)]
            nodes = [_node(actor, self._requests.put) for actor in actors]
            for node in nodes:
                versions.compare(node.host, node.address, node.versions)
        except Exception as error:
            self.stop((placed, actors))
            if isinstance(error, ClusterError):
                raise
            raise ClusterError(ray_advice.explain(self._address, error)) from error
        return (placed, actors), sorted(nodes, key=lambda node: versions.order(node.address, node.host))

    def _wait_for(self, placed: Any, machines: NodeRequest) -> None:
        """Waits for nodes that are in use, but not for one that Ray finds to be gone in the meantime."""
        deadline = time.monotonic() + _ALLOCATION_TIMEOUT
        while not placed.wait(_CHECK_INTERVAL):
            self._check(machines)
            if time.monotonic() > deadline:
                raise ClusterError(ray_advice.busy(machines, _ALLOCATION_TIMEOUT))

    def share(self, data: bytes) -> Any:
        if len(data) < _OBJECT_STORE_FROM:
            return data
        import ray

        return ray.put(data)

    def stop(self, started: Any) -> None:
        import ray
        from ray.util.placement_group import remove_placement_group

        placed, actors = started
        for actor in actors:
            ray.kill(actor)
        remove_placement_group(placed)

    def _check(self, machines: NodeRequest) -> None:
        found = self.survey()
        fit = [each for each in found if each.cpus >= machines.cpus and each.gpus >= machines.gpus]
        if len(fit) < machines.count:
            raise ClusterError(contract.not_enough_nodes(machines, found))


class RayNode:
    """A node on which an actor hosts the agent."""

    def __init__(
        self,
        actor: Any,
        info: Mapping[str, Any],
        offset: float,
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        self.host = str(info["host"])
        self.address = str(info["address"])
        self.versions: Mapping[str, str] = info["versions"]
        self.offset = offset
        self._actor = actor
        self._requests = later
        self._sent = 0
        self._on_lost: Callable[[str], object] = lambda why: None

    def send(self, frames: Sequence[Frame]) -> None:
        delivered = self._actor.deliver.remote(self._sent, list(frames))
        self._sent += 1
        delivered.future().add_done_callback(
            self._arrived
        )  # the agent waits for this number before it handles a later one

    def listen(self, on_frames: Callable[[Sequence[Frame]], object], on_lost: Callable[[str], object]) -> None:
        self._on_lost = on_lost
        self._poll(0, on_frames)

    def _arrived(self, delivered: Any) -> None:
        if (error := delivered.exception()) is not None:
            self._on_lost(ray_advice.why_lost(error))

    def _poll(self, after: int, on_frames: Callable[[Sequence[Frame]], object]) -> None:
        def answer(future: Any) -> None:
            try:
                reached, frames = future.result()
            except Exception as error:
                self._on_lost(ray_advice.why_lost(error))
                return
            self._requests(partial(self._poll, reached, on_frames))  # first, since the round trip takes a millisecond
            on_frames(frames)

        try:
            self._actor.poll.remote(after, WAIT).future().add_done_callback(answer)
        except Exception as error:
            self._on_lost(ray_advice.why_lost(error))


def _join(address: str) -> None:
    import ray

    ray.init(
        address=address,
        namespace=f"notebook-accel-{secrets.token_hex(8)}",
        log_to_driver=False,
        logging_level="ERROR",
    )


def _within(seconds: float, act: Callable[[], object]) -> None:
    """Calls a function that may never return, on a thread that is abandoned in that case.

    Raises:
        TimeoutError: The function has not returned in time.
    """
    done: futures.Future[object] = futures.Future()

    def run() -> None:
        try:
            done.set_result(act())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="joining", daemon=True).start()
    try:
        done.result(seconds)
    except futures.TimeoutError as error:  # a different class before Python 3.11
        raise TimeoutError from error


def _actor(placed: Any, index: int, machines: NodeRequest, environ: Mapping[str, str]) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from notebook_accel.launch.cluster.agent.ray_actor import CONCURRENCY, RayAgent

    make: Any = ray.remote(concurrency_groups=CONCURRENCY)(RayAgent)
    return make.options(
        num_cpus=machines.cpus,
        num_gpus=machines.gpus,
        max_restarts=0,
        scheduling_strategy=PlacementGroupSchedulingStrategy(placed, placement_group_bundle_index=index),
    ).remote(dict(environ))


def _node(actor: Any, later: Callable[[Callable[[], object]], object]) -> RayNode:
    import ray

    ray.get(actor.info.remote(), timeout=_AGENT_TIMEOUT)  # waits until its process has started
    asked = time.time()
    info = ray.get(actor.info.remote(), timeout=_AGENT_TIMEOUT)
    return RayNode(actor, info, info["clock"] - (asked + time.time()) / 2, later)
