"""Patches JAX so that `jax.distributed.initialize()` finds the ranks without arguments.

JAX detects where it runs by classes that register themselves as they are defined
(https://github.com/jax-ml/jax/blob/main/jax/_src/clusters/cluster.py). This one is put first: a rank of a notebook that
runs under Slurm or Kubernetes belongs to the launch, not to those. JAX asks none of them if it is passed arguments.
"""

from __future__ import annotations

import os
from typing import Any

from notebook_accel.launch.wire.mirrored.on_import import when_imported


def install() -> None:
    """Registers the ranks with JAX, once it is imported."""
    when_imported({"jax._src.clusters.cluster": _register})


def _register(module: Any) -> None:
    known = module.ClusterEnv._cluster_types
    if any(cluster.name == "notebook-accel" for cluster in known):
        return

    class Launch(module.ClusterEnv):  # type: ignore[misc]
        """The ranks of one launch."""

        name = "notebook-accel"

        @classmethod
        def is_env_present(cls) -> bool:
            return "JAX_COORDINATOR_PORT" in os.environ

        @classmethod
        def get_coordinator_address(cls, *_: Any, **__: Any) -> str:
            address = f"{os.environ['MASTER_ADDR']}:{os.environ['JAX_COORDINATOR_PORT']}"
            # By default JAX listens on every interface. Set only here: an address that the user passes has its own.
            os.environ.setdefault("JAX_COORDINATOR_BIND_ADDRESS", address)
            return address

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["RANK"])

        @classmethod
        def get_local_process_id(cls) -> int:
            """The index of this rank's GPU among those that all ranks of this node see."""
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            shared = len(visible.split(",")) if visible else int(os.environ["LOCAL_WORLD_SIZE"])
            return int(os.environ["LOCAL_RANK"]) % shared

    known.insert(0, known.pop())
