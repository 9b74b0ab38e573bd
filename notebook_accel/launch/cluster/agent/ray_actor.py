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
    """An agent that gets large blobs through Ray's object store, which transfers each blob to a machine only once.

    Args:
        environ: Environment variables for the ranks; see `NodeAgent`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        # Ray adds folders with its own copies of packages for its workers. Our child processes must not use them.
        own = os.path.dirname(ray.__file__) + os.sep
        sys.path[:] = [folder for folder in sys.path if not folder.startswith(own)]
        super().__init__(ray.util.get_node_ip_address(), environ)

    # Each method has its own thread, so that `deliver` does not wait while `poll` waits.

    @ray.method(concurrency_group="deliver")  # type: ignore[untyped-decorator]
    def deliver(self, number: int, frames: Sequence[Frame]) -> None:
        super().deliver(number, [(header, [_here(blob) for blob in blobs]) for header, blobs in frames])

    @ray.method(concurrency_group="poll")  # type: ignore[untyped-decorator]
    def poll(self, after: int, wait: float) -> tuple[int, list[Frame]]:
        return super().poll(after, wait)


CONCURRENCY = {"deliver": 1, "poll": 1}


def _here(blob: Any) -> Any:
    return blob if isinstance(blob, (bytes, bytearray)) else ray.get(blob)
