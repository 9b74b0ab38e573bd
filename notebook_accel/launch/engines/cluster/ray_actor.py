"""The Ray actor that hosts an agent on a machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from notebook_accel.launch.engines.cluster.agent import NodeAgent
from notebook_accel.launch.engines.cluster.frames import Frame


class RayAgent(NodeAgent):
    """An agent to which large blobs come through Ray's object store, which brings each to a machine once.

    Args:
        environ: What ranks are told; see `NodeAgent`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        import ray

        # What Ray has brought for its own workers is not for what this process starts.
        own = os.path.dirname(ray.__file__) + os.sep
        sys.path[:] = [folder for folder in sys.path if not folder.startswith(own)]
        super().__init__(ray.util.get_node_ip_address(), environ)

    def tell(self, number: int, frames: Sequence[Frame]) -> None:
        super().tell(number, [(header, [_here(blob) for blob in blobs]) for header, blobs in frames])


def _here(blob: Any) -> Any:
    if isinstance(blob, bytes):
        return blob
    import ray

    return ray.get(blob)
