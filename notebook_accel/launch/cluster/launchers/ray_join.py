"""Joins a Ray cluster, and lists its nodes. Errors say what to do, if possible before Ray itself is asked."""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
import threading
from collections.abc import Callable
from concurrent import futures

from notebook_accel.launch.cluster import versions
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.launchers import ray_advice
from notebook_accel.launch.engines.contract import NodeInfo

_SLOW_IMPORT = "rfc3987_syntax"
"""Ray imports jsonschema, which imports this optional package if Jupyter has installed it. It takes three seconds to
build a grammar for a format of addresses that Ray does not check."""
_LOCAL_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If 0, Ray does not look for an address at which others could reach this machine."""


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
    address = ray_advice.locate(given)
    ray_advice.check_token(given, address, insecure=insecure)
    ray_advice.check_reachable(address)
    if ray_advice.is_loopback(address):
        os.environ[_LOCAL_ONLY] = "0"
    sys.modules.setdefault(_SLOW_IMPORT, None)  # type: ignore[arg-type]  # importing it then raises ImportError, which jsonschema handles
    ray_advice.check_accepted(address)
    import ray

    try:
        if ray_advice.is_client(address):
            _within(timeout, lambda: _join(address))
        else:
            _join(address)
    except TimeoutError as error:
        raise ClusterError(ray_advice.stuck(address, timeout), again=True) from error
    except Exception as error:
        raise ClusterError(ray_advice.explain(address, error), again=ray_advice.is_stuck(error)) from error
    if not insecure and not ray_advice.has_token():
        others = [node.address for node in survey() if not ray_advice.is_loopback(node.address)]
        if others:
            ray.shutdown()
            raise ClusterError(ray_advice.no_token(given))


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
