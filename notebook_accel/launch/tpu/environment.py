"""The environment of torch_xla's processes, without what would mislead it.

torch_xla sets only variables that are not set yet. Variables left by an image, an earlier launch or another launcher
would therefore decide which chips a process sees and which processes it waits for.

Source: `configure_topology`, `process_bounds_size` and `build_tpu_env_from_vars` in `torch_xla/_internal/tpu.py`, and
`launch` in `torch_xla/torch_xla.py`, of torch_xla 2.9.0.
"""

from __future__ import annotations

from collections.abc import Mapping

_PER_PROCESS = (
    "CLOUD_TPU_TASK_ID",
    "TPU_PROCESS_ADDRESSES",  # Kaggle presets "local", which ends in "Expected 4 worker addresses, got 1"
    "TPU_PROCESS_PORT",
    "TPU_VISIBLE_CHIPS",
    "TPU_VISIBLE_DEVICES",
    "TPU_MESH_CONTROLLER_ADDRESS",
    "TPU_MESH_CONTROLLER_PORT",
    "PJRT_LOCAL_PROCESS_RANK",
    "PJRT_LOCAL_PROCESS_COUNT",
    "XRT_TPU_CONFIG",  # of the runtime before PJRT
    "XLA_USE_SPMD",  # a launch for SPMD sets it itself
)
"""Variables that each process of a launch gets for itself."""
_PER_HOST = {
    "TPU_PROCESS_BOUNDS": "TPU_HOST_BOUNDS",
    "TPU_CHIPS_PER_PROCESS_BOUNDS": "TPU_CHIPS_PER_HOST_BOUNDS",
    "CLOUD_TPU_TASK_ID": "TPU_WORKER_ID",
}
"""What an image sets for the host, under names that torch_xla reads as a process's own; and the names for the host."""
PER_RANK = ("RANK", "LOCAL_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""What differs from rank to rank, or would make code expect a process group of `torch.distributed`."""


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the ranks' processes, from that of a rank."""
    environment = dict(environ)
    for old, new in _PER_HOST.items():
        if old in environment:
            environment.setdefault(new, environment[old])
            del environment[old]
    # With these, torch_xla assumes that torchrun started it, and runs the function in this process.
    return {
        name: value
        for name, value in environment.items()
        if name not in (*_PER_PROCESS, *PER_RANK) and not name.startswith("TORCHELASTIC_")
    }
