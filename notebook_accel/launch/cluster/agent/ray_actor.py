"""The Ray actor that hosts an agent on a node. Imports Ray, so it is imported only in processes that use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from notebook_accel.launch.cluster.agent.agent import NodeAgent
from notebook_accel.launch.cluster.protocol import Frame


class RayAgent(NodeAgent):
    """An agent to which large blobs come through Ray's object store, which brings each to a machine once.

    Args:
        environ: What ranks are told; see `NodeAgent`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        # What Ray has brought for its own workers is not for what this process starts.
        own = os.path.dirname(ray.__file__) + os.sep
        sys.path[:] = [folder for folder in sys.path if not folder.startswith(own)]
        super().__init__(ray.util.get_node_ip_address(), environ)

    # Each method has a thread of its own, so that `deliver` does not wait for a `poll` that waits.

    @ray.method(concurrency_group="deliver")  # type: ignore[untyped-decorator]
    def deliver(self, number: int, frames: Sequence[Frame]) -> None:
        super().deliver(number, [(header, [_here(blob) for blob in blobs]) for header, blobs in frames])

    @ray.method(concurrency_group="poll")  # type: ignore[untyped-decorator]
    def poll(self, after: int, wait: float) -> tuple[int, list[Frame]]:
        return super().poll(after, wait)


CONCURRENCY = {"deliver": 1, "poll": 1}


def _here(blob: Any) -> Any:
    return blob if isinstance(blob, (bytes, bytearray)) else ray.get(blob)
