"""Starts agents with one Ray actor on each node. Ray finds and reserves the nodes, and starts the processes."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

from notebook_accel.launch.cluster import agent_launcher, versions
from notebook_accel.launch.cluster.agent_launcher import ClusterError, Order
from notebook_accel.launch.engines.contract import NodeInfo, NodeRequest

_ALLOCATION_TIMEOUT = 60.0
"""Seconds to wait for nodes that are in use."""
_CHECK_INTERVAL = 2.0
_LITTLE = 0.001
"""Of the resource that each node of Ray has one of, by which an actor is bound to it."""
_SLOW_IMPORT = "rfc3987_syntax"
"""Ray imports jsonschema, which imports this optional package if Jupyter has installed it. It takes three seconds to
build a grammar for a format of addresses that Ray does not check."""
_LOCAL_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If 0, Ray does not look for an address at which others could reach this machine."""
_CLIENT = "ray://"
_STUCK = ("Starting Ray client server failed", "Initialization failure from server")
_UNSTUCK = (
    "It starts a process for each client, which sometimes hangs "
    "(https://github.com/ray-project/ray/issues/63202). Start the head with GRPC_ENABLE_FORK_SUPPORT=0 in its "
    "environment, or run the notebook on a machine of the cluster, with cluster='auto'."
)
_CONNECT_TIMEOUT = 5.0
"""Seconds to wait for a head to accept a connection."""
_NO_TOKEN = "no authentication token was found|(couldn't|could not) find an authentication token"
_REFUSED = "unauthenticated|authentication|authorization|token"
_ADVICE = {
    "version mismatch": """
        the cluster runs another version of Ray or Python than this notebook. Install the same on every machine.""",
    _NO_TOKEN: """
        RAY_AUTH_MODE=token is set, but this notebook has no token. Set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the
        cluster's own, in the environment of the notebook.""",
    _REFUSED: """
        the cluster did not accept this notebook's token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or
        RAY_AUTH_TOKEN_PATH to the cluster's own, in the environment of the notebook.""",
    "no module named '?notebook_accel": """
        notebook-accel is not installed on every machine: pip install 'notebook-accel[cluster]' there.""",
    "no module named '?torch": """
        torch is not installed on every machine of the cluster: install the version that this notebook has.""",
    "node_ip_address.json|can't find.*node|no available node|node info|not.*a node|same node|find.*raylet": """
        this machine is not a node of the cluster. Join it with `ray start --address=HOST:PORT`, or connect through the
        head's client server: cluster='ray://HOST:10001'.""",
    "timed out|timeout|unavailable|failed to connect|connect": """
        it did not answer like a Ray head. Check the address and the port (6379 for HOST:PORT, 10001 for
        ray://HOST:PORT), the firewall between, and that the notebook has the cluster's token (RAY_AUTH_MODE=token and
        RAY_AUTH_TOKEN): a wrong one looks the same.""",
}
"""The meanings of Ray's errors, by patterns of their text."""


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
        join(self._address, insecure=self._insecure, timeout=timeout)

    def survey(self) -> list[NodeInfo]:
        return survey()

    def start(self, request: NodeRequest, nodes: Sequence[NodeInfo], order: Order) -> _Actors:
        # Ray chooses, unless it would choose a node that shuts down, which it does not know yet.
        chosen = [node.address for node in nodes] if request.excluded else []
        started = _Actors(self._address, request, chosen)
        try:
            started.start(order)
        except Exception as error:
            started.stop()
            raise to_cluster_error(self._address, error) from error
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
                raise to_cluster_error(self._address, error) from error
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
            agent_launcher.fitting(self._request, survey())
            if time.monotonic() > deadline:
                raise ClusterError(busy(self._request, _ALLOCATION_TIMEOUT))

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


def join(given: str, *, insecure: bool, timeout: float) -> None:
    """Joins the cluster.

    Args:
        given: `auto`, `host:port` or `ray://host:port`.
        insecure: Whether a cluster that requires no token is allowed.
        timeout: Seconds after which a connection that may be stuck is given up.

    Raises:
        ClusterError: It can't be reached, or is not trusted.
    """
    if importlib.util.find_spec("ray") is None:
        raise ClusterError(
            f'cluster={given!r} is reached through Ray, which is not installed: pip install "notebook-accel[cluster]"'
        )
    address = locate(given)
    check_token(given, address, insecure=insecure)
    check_reachable(address)
    if is_loopback(address):
        os.environ[_LOCAL_ONLY] = "0"
    sys.modules.setdefault(_SLOW_IMPORT, None)  # type: ignore[arg-type]  # importing it then raises ImportError, which jsonschema handles
    check_accepted(address)
    import ray

    try:
        if is_client(address):
            _within(timeout, lambda: _join(address))
        else:
            _join(address)
    except TimeoutError as error:
        raise ClusterError(stuck(address, timeout), again=True) from error
    except Exception as error:
        raise ClusterError(explain(address, error), again=is_stuck(error)) from error
    if not insecure and not has_token():
        others = [node.address for node in survey() if not is_loopback(node.address)]
        if others:
            ray.shutdown()
            raise ClusterError(no_token(given))


def survey() -> list[NodeInfo]:
    """The nodes of the cluster that was joined."""
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
    return sorted(found, key=lambda node: versions.order(node.address, node.host))


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


def locate(address: str) -> str:
    """Resolves `auto` to the address of the cluster that this machine is a node of.

    Raises:
        ClusterError: This machine is not a node of a cluster.
    """
    if address != "auto":
        return address
    from ray._private import services

    found = None
    with contextlib.suppress(ConnectionError):  # its message only says that there is none
        found = services.get_ray_address_from_environment("auto", None)
    if not found or found == "local":
        raise ClusterError(
            "cluster='auto' needs this machine to be a node of a Ray cluster, but it is not. Start a cluster with "
            "`ray start --head --node-ip-address=127.0.0.1` for this machine alone, join one with `ray start "
            "--address=HOST:PORT`, or name one: cluster='ray://HOST:10001'."
        )
    return str(found)


def is_client(address: str) -> bool:
    """Whether an address is that of a head's client server."""
    return address.startswith(_CLIENT)


def is_stuck(error: Exception) -> bool:
    """Whether the head's client server failed to start the process for a client; it may succeed for the next client.

    It forks while gRPC's threads run, which sometimes crashes the fork or makes it hang.

    Source: https://github.com/ray-project/ray/issues/63202
    """
    return any(sign in str(error) for sign in _STUCK)


def stuck(address: str, seconds: float) -> str:
    """The message for a client server that did not answer in time."""
    return f"{address}: Ray's client server did not start to serve this notebook within {seconds:g} s. {_UNSTUCK}"


def has_token() -> bool:
    """Whether Ray is configured to use tokens."""
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address of this machine."""
    host = _host(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(given: str, address: str, *, insecure: bool) -> None:
    """Refuses a cluster on other machines that requires no token.

    Raises:
        ClusterError: No token is set.
    """
    if not insecure and not has_token() and not is_loopback(address):
        raise ClusterError(no_token(given))


def no_token(given: str) -> str:
    """The error message for a cluster without a token."""
    return (
        f"cluster={given!r} is used without a token: anyone who can reach it can run code on all of its machines, and "
        "on this one. Start Ray with RAY_AUTH_MODE=token and a secret in RAY_AUTH_TOKEN, and set the same here (`ray "
        "get-auth-token --generate` makes one); or, on a network that only you can reach, pass insecure=True."
    )


def check_reachable(address: str) -> None:
    """Checks that the address accepts connections.

    Raises:
        ClusterError: It does not.
    """
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(f"cluster={address!r} is not an address: write 'ray://HOST:10001', 'HOST:6379' or 'auto'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
    except OSError as error:
        raise ClusterError(
            f"the Ray cluster at {address} can't be reached: {error}. Check that its head runs (`ray status` there), "
            "and that this machine can reach that port."
        ) from error


def check_accepted(address: str) -> None:
    """Checks that the head accepts the token. Ray itself would retry for half a minute if it is refused.

    Raises:
        ClusterError: The token is not the cluster's, or is missing.
    """
    try:
        from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
        from ray._raylet import GcsClient

        ensure_token_if_auth_enabled(create_token_if_missing=False)
        if not is_client(address):  # which another service answers
            GcsClient(address=address)
    except Exception as error:
        text = str(error)
        if any(re.search(pattern, text, re.IGNORECASE) for pattern in (_NO_TOKEN, _REFUSED)):
            raise ClusterError(explain(address, error)) from error
        # Ray itself reports other errors in more detail, and knows how long to wait.


def explain(address: str, error: Exception) -> str:
    """Explains an error from Ray."""
    text = f"{type(error).__name__}: {error}"
    if is_stuck(error):
        return f"the Ray cluster at {address} can't be used: {_UNSTUCK}\nRay reports: {_short(text)}"
    for pattern, advice in _ADVICE.items():
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            advice = " ".join(advice.split())
            return f"the Ray cluster at {address} can't be used: {advice}\nRay reports: {_short(text)}"
    return f"the Ray cluster at {address} can't be used: {_short(text)}"


def to_cluster_error(address: str, error: Exception) -> ClusterError:
    """The error to raise for one of Ray's, or for one that an actor has raised."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, ClusterError):  # of an agent
        through_nat = f" Through {address}, only the notebook has to reach the cluster, which is not enough here."
        return ClusterError(str(cause) + through_nat if is_client(address) else str(cause))
    return error if isinstance(error, ClusterError) else ClusterError(explain(address, error))


def busy(request: NodeRequest, seconds: float) -> str:
    """The message for nodes that exist and are in use."""
    return (
        f"the cluster has {request.count} machines with {request} each, but they were not free for {seconds:g} s: "
        "others use them, or one does not answer. `ray status` shows which; a notebook releases unused machines "
        "after 5 minutes, and Ray takes about a minute to notice that one is gone."
    )


def _host(address: str) -> str:
    return address.removeprefix(_CLIENT).rpartition(":")[0].strip("[]") or address


def _short(text: str) -> str:
    return text if len(text) < 600 else f"{text[:300]} … {text[-300:]}"
