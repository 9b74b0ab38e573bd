"""How ranks of frameworks that have a rendezvous of their own find each other: one table of what they are told.

Most read what `torchrun` has made a standard and every rank has: torch itself, Lightning, transformers, Accelerate,
Keras on torch. A row of this table is for one that does not. Its variables are set only where it is installed, and only
if neither the notebook nor the launch has them: they change nothing for a rank that does not use it.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from notebook_accel.launch.engines.contract import Meeting, Ports
from notebook_accel.launch.system.interfaces import LOOPBACK


@dataclass(frozen=True)
class Place:
    """Where the ranks of this machine are."""

    size: int
    device: str
    ports: Ports | None
    """`None` with several machines, which can't know each other's free ports."""


Variables = dict[str, str]


@dataclass(frozen=True)
class Framework:
    """A row of the table."""

    package: str
    """What is installed where the ranks are told of it."""
    own: frozenset[str]
    """Variables of which the user has set none: else the user means to see to all of it."""
    tell: Callable[[Place], list[Variables]]
    """The variables of each rank."""


def _tell_jax(place: Place) -> list[Variables]:
    """The port of its coordinator, which rank 0 opens. The rest is told when it asks, by `jax_cluster`.

    Source: https://docs.jax.dev/en/latest/multi_process.html
    """
    told = {} if place.device != "cpu" else {"JAX_PLATFORMS": "cpu"}
    if place.ports is not None:
        told["JAX_COORDINATOR_PORT"] = str(place.ports.take())
    return [told] * place.size


def _tell_tensorflow(place: Place) -> list[Variables]:
    """Every rank is a worker with a server of its own, on a port that is held for it until it takes it over.

    Source: https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
    """
    if place.ports is None:
        return [{} for _ in range(place.size)]
    cluster = {"worker": [f"{LOOPBACK}:{place.ports.take()}" for _ in range(place.size)]}
    return [
        {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}),
            "TF_GRPC_REUSE_PORT": "true",
        }
        for rank in range(place.size)
    ]


FRAMEWORKS = (
    Framework("jax", frozenset({"JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT"}), _tell_jax),
    Framework("tensorflow", frozenset({"TF_CONFIG"}), _tell_tensorflow),
)


def variables(size: int, device: str, meeting: Meeting, environ: Mapping[str, str]) -> list[Variables]:
    """What each rank is told beside what torch's ranks are.

    Args:
        size: Ranks on this machine.
        device: What they run on.
        meeting: Where they meet; it keeps the ports.
        environ: What they have already.
    """
    place = Place(size, device, meeting.ports if meeting.num_nodes == 1 and not meeting.is_arranged else None)
    found: list[Variables] = [{} for _ in range(size)]
    for framework in FRAMEWORKS:
        if is_installed(framework.package) and not framework.own & environ.keys():
            for rank, told in zip(found, framework.tell(place), strict=True):
                rank.update({name: value for name, value in told.items() if name not in environ})
    return found


def is_installed(package: str) -> bool:
    """Whether a package could be imported; it is not."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # something that is none stands under its name
        return False
