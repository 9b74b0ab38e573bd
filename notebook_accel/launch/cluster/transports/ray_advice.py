"""Diagnoses what is wrong with a Ray cluster, before connecting where possible, and says what to do."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket

from notebook_accel.launch.cluster.transport import ClusterError
from notebook_accel.launch.engines.contract import NodeRequest

_CLIENT = "ray://"
_STUCK = ("Starting Ray client server failed", "Initialization failure from server")
_UNSTUCK = (
    "It starts a process for each client, and that is stuck now and then "
    "(https://github.com/ray-project/ray/issues/63202). Start the head with GRPC_ENABLE_FORK_SUPPORT=0 in its "
    "environment; or run the notebook on a machine of the cluster, with cluster='auto'."
)
_CONNECT_TIMEOUT = 5.0
"""Seconds to wait for a head to accept a connection."""
_NO_TOKEN = "no authentication token was found|(couldn't|could not) find an authentication token"
_REFUSED = "unauthenticated|authentication|authorization|token"
_ADVICE = {
    "version mismatch": """
        the cluster runs another version of Ray or Python than this notebook. Install the same on every machine.""",
    _NO_TOKEN: """
        RAY_AUTH_MODE=token is set, and this notebook has no token. Set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the
        cluster's own, in the environment of the notebook.""",
    _REFUSED: """
        the cluster did not accept this notebook's token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or
        RAY_AUTH_TOKEN_PATH to the cluster's own, in the environment of the notebook.""",
    "no module named '?notebook_accel": """
        notebook-accel is not installed on every machine: pip install 'notebook-accel[cluster]' there.""",
    "no module named '?torch": """
        torch is not installed on every machine of the cluster: install the version that this notebook has.""",
    "node_ip_address.json|can't find.*node|no available node|node info|not.*a node|same node|find.*raylet": """
        this machine is no node of the cluster. Join it by `ray start --address=HOST:PORT`, or connect through the
        head's client server: cluster='ray://HOST:10001'.""",
    "timed out|timeout|unavailable|failed to connect|connect": """
        it did not answer as a Ray head does. Check the address and the port (6379 for HOST:PORT, 10001 for
        ray://HOST:PORT), the firewall between, and that the notebook has the cluster's token (RAY_AUTH_MODE=token and
        RAY_AUTH_TOKEN): a wrong one looks the same.""",
}
"""What Ray's errors mean, by patterns of their text."""


def locate(address: str) -> str:
    """The address that stands for `auto`: of the cluster that this machine is a node of.

    Raises:
        ClusterError: There is none.
    """
    if address != "auto":
        return address
    from ray._private import services

    found = None
    with contextlib.suppress(ConnectionError):  # it says no more than that there is none
        found = services.get_ray_address_from_environment("auto", None)
    if not found or found == "local":
        raise ClusterError(
            "cluster='auto' is the Ray cluster that this machine is a node of, and it is of none. Start one by `ray "
            "start --head --node-ip-address=127.0.0.1` for this machine alone, join one by `ray start "
            "--address=HOST:PORT`, or name one: cluster='ray://HOST:10001'."
        )
    return str(found)


def is_client(address: str) -> bool:
    """Whether an address is that of a head's client server."""
    return address.startswith(_CLIENT)


def is_stuck(error: Exception) -> bool:
    """Whether the head's client server could not start what serves a client; with the next one it may.

    It forks for that while threads of gRPC run, which now and then ends the fork, or leaves it stuck.

    Source: https://github.com/ray-project/ray/issues/63202
    """
    return any(sign in str(error) for sign in _STUCK)


def stuck(address: str, seconds: float) -> str:
    """The message for a client server that did not answer in time."""
    return f"{address}: Ray's client server has not begun to serve this notebook within {seconds:g} s. {_UNSTUCK}"


def has_token() -> bool:
    """Whether Ray is configured to use tokens."""
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def is_loopback(address: str) -> bool:
    """Whether an address is this machine, seen from itself."""
    host = _host(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(given: str, address: str, *, insecure: bool) -> None:
    """Refuses a cluster on other machines that anybody may use.

    Raises:
        ClusterError: No token is set.
    """
    if not insecure and not has_token() and not is_loopback(address):
        raise ClusterError(no_token(given))


def no_token(given: str) -> str:
    """Why such a cluster is refused."""
    return (
        f"cluster={given!r} is used without a token: whoever reaches it can run code on all of its machines, and on "
        "this one. Start Ray with RAY_AUTH_MODE=token and a secret in RAY_AUTH_TOKEN, and set the same here (`ray "
        "get-auth-token --generate` makes one); or, on a network that only you can reach, pass insecure=True."
    )


def check_reachable(address: str) -> None:
    """Sees that something listens.

    Raises:
        ClusterError: Nothing does.
    """
    host, _, port = address.removeprefix(_CLIENT).rpartition(":")
    if not host or not port.isdecimal():
        raise ClusterError(f"cluster={address!r} is no address: write 'ray://HOST:10001', 'HOST:6379' or 'auto'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
    except OSError as error:
        raise ClusterError(
            f"the Ray cluster at {address} can't be reached: {error}. Check that its head runs (`ray status` there), "
            "and that this machine can reach that port."
        ) from error


def check_accepted(address: str) -> None:
    """Shows the head the token, which Ray itself does for half a minute where it is refused.

    Raises:
        ClusterError: It is not the cluster's, or there is none.
    """
    try:
        from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
        from ray._raylet import GcsClient

        ensure_token_if_auth_enabled(create_token_if_missing=False)
        if not is_client(address):  # where another service answers
            GcsClient(address=address)
    except Exception as error:
        text = str(error)
        if any(re.search(pattern, text, re.IGNORECASE) for pattern in (_NO_TOKEN, _REFUSED)):
            raise ClusterError(explain(address, error)) from error
        # Of all else Ray itself tells more, and knows how long to wait.


def explain(address: str, error: Exception) -> str:
    """What Ray's own error means."""
    text = f"{type(error).__name__}: {error}"
    if is_stuck(error):
        return f"the Ray cluster at {address} can't be used: {_UNSTUCK}\nRay said: {_short(text)}"
    for pattern, advice in _ADVICE.items():
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return f"the Ray cluster at {address} can't be used: {' '.join(advice.split())}\nRay said: {_short(text)}"
    return f"the Ray cluster at {address} can't be used: {_short(text)}"


def busy(machines: NodeRequest, seconds: float) -> str:
    """The message for nodes that exist and are in use."""
    return (
        f"{machines.count} machines with {machines} each are there, and were not free for {seconds:g} s: others use "
        "them, or one does not answer. `ray status` shows who; a notebook gives back machines that it does not use "
        "after 5 minutes, and Ray takes about a minute to see that one has gone."
    )


def why_lost(error: Exception) -> str:
    """Why the connection to a node was lost."""
    if "node" in str(error).lower() and "died" in str(error).lower():
        return "the machine has gone, or Ray on it has ended"
    return "the connection to it broke: the machine, or the agent on it, has gone"


def _host(address: str) -> str:
    return address.removeprefix(_CLIENT).rpartition(":")[0].strip("[]") or address


def _short(text: str) -> str:
    return text if len(text) < 600 else f"{text[:300]} … {text[-300:]}"
