"""Patches DDP's logger where it crashes the process: over gloo, with `TORCH_DISTRIBUTED_DEBUG=DETAIL`.

At that level, which debug mode sets, torch wraps each process group in one that compares the ranks' collectives. While
DDP is constructed, its logger takes the wrapper for a gloo group (torch 2.13, `Logger::set_construction_data_and_log`).
What it would record there is for torch's own statistics only.
"""

from __future__ import annotations

import os
from typing import Any

from notebook_accel.launch.wire.mirrored.on_import import when_imported


def install() -> None:
    """Patches the logger once DDP is imported, if ranks compare their collectives."""
    if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        when_imported({"torch.nn.parallel.distributed": _patch})


def _patch(module: Any) -> None:
    module.dist.Logger.set_construction_data_and_log = lambda *_: None
