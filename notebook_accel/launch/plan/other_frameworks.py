"""The table of environment variables for frameworks with their own rendezvous.

Most frameworks (torch itself, Lightning, transformers, Accelerate, Keras on torch) read torchrun's variables, which
every rank has. Each row of this table is for one that does not. Its variables are set only if the framework is
installed and neither the notebook nor the launch sets them, so they change nothing for other ranks.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from notebook_accel.launch.system.network import LOOPBACK, ReservedPorts


@dataclass(frozen=True)
class LocalRanks:
    """The ranks of this node."""

    size: int
    device: str
    ports: ReservedPorts | None
    """`None` with several nodes, because they can't know each other's free ports."""


Variables = dict[str, str]


@dataclass(frozen=True)
class Framework:
    """A row of the table."""

    package: str
    """The variables are set only where this package is installed."""
    own: frozenset[str]
    """If the user has set any of these, no variable is set, since the user then configures the framework."""
    variables: Callable[[LocalRanks], list[Variables]]
    """The variables of each rank."""


def _for_jax(local: LocalRanks) -> list[Variables]:
    """The port of its coordinator, which rank 0 opens. `rank/patches/jax.py` provides the rest when jax asks for it.

    Source: https://docs.jax.dev/en/latest/multi_process.html
    """
    variables = {} if local.device != "cpu" else {"JAX_PLATFORMS": "cpu"}
    if local.ports is not None:
        variables["JAX_COORDINATOR_PORT"] = str(local.ports.take())
    return [variables] * local.size


def _for_tensorflow(local: LocalRanks) -> list[Variables]:
    """Every rank is a worker with its own server, on a port that is reserved until the worker binds it.

    Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    if local.ports is None:
        return [{} for _ in range(local.size)]
    cluster = {"worker": [f"{LOOPBACK}:{local.ports.take()}" for _ in range(local.size)]}
    return [
        {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
            "TF_GRPC_REUSE_PORT": "true",
        }
        for rank in range(local.size)
    ]


FRAMEWORKS = (
    Framework("jax", frozenset({"JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"}), _for_jax),
    Framework("tensorflow", frozenset({"TF_CONFIG"}), _for_tensorflow),
)


def variables(size: int, device: str, ports: ReservedPorts | None, environ: Mapping[str, str]) -> list[Variables]:
    """The variables of each rank, in addition to those that torch reads.

    Args:
        size: Ranks on this node.
        device: What they run on.
        ports: Reserves ports on this node until the ranks have exited; `None` with several nodes.
        environ: The environment that they have already.
    """
    local = LocalRanks(size, device, ports)
    by_rank: list[Variables] = [{} for _ in range(size)]
    for framework in FRAMEWORKS:
        if is_installed(framework.package) and not framework.own & environ.keys():
            for rank, own in zip(by_rank, framework.variables(local), strict=True):
                rank.update({name: value for name, value in own.items() if name not in environ})
    return by_rank


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a broken module of this name
        return False
