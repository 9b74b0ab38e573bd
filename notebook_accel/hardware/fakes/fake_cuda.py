"""A stand-in for what torch knows of a CUDA device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class FakeCuda:
    """As much of `torch.cuda` as a rank asks when a device's memory has run out.

    Args:
        blocks: For each live block its bytes, and the frames that allocated it, innermost first, each with its file,
            line, and function. Frames are empty unless `torch.cuda.memory._record_memory_history` was called.
    """

    def __init__(self, blocks: Sequence[tuple[int, Sequence[tuple[str, int, str]]]]) -> None:
        self._blocks = blocks
        self.memory = self

    def is_initialized(self) -> bool:
        return True

    def _snapshot(self) -> dict[str, Any]:
        address, blocks = 0x7F0000000000, []
        for size, frames in self._blocks:
            named = [{"filename": file, "line": line, "name": name} for file, line, name in frames]
            block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
            blocks.append({**block, "frames": named})
            address += size
        total = sum(size for size, _ in self._blocks)
        free = {"address": address, "size": 2**21, "requested_size": 0, "state": "inactive", "frames": []}
        segment = {
            "device": 0,
            "address": 0x7F0000000000,
            "total_size": total + 2**21,
            "allocated_size": total,
            "active_size": total,
            "requested_size": total,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "blocks": [*blocks, free],
        }
        traces = [{"action": "oom", "addr": 0, "size": 2**30, "stream": 0, "device_free": 2**20, "frames": []}]
        return {"segments": [segment], "device_traces": [traces], "allocator_settings": {}, "external_annotations": []}
