"""Torch's snapshot of the memory of CUDA devices: which blocks it holds and, if that was recorded, who made them.

Source: "Understanding CUDA Memory Usage" in torch's documentation, and `torch.cuda.memory`. The snapshot is a dict:
`segments`, each with its `blocks`, each of these with its `size`, its `state` and the `frames` that allocated it;
`device_traces`, the last allocations. https://docs.pytorch.org/memory_viz shows a pickle of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from notebook_accel.events import Frame, LiveArray
from notebook_accel.launch.rank.out_of_memory.live_arrays import MOST
from notebook_accel.launch.wire import stack_frames

MOST_BYTES = 64 * 2**20
"""The most bytes of a snapshot that is sent."""
_LIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
"""States of blocks in use; the last two are the names of one state in torch's documentation and in its code."""
_NO_LINES = (
    "To see which lines made the tensors, call torch.cuda.memory._record_memory_history() at the beginning of the "
    "function"
)


def take(torch: Any) -> tuple[list[LiveArray], bytes, str]:
    """The live blocks by the line that allocated them, the largest first; the snapshot, pickled; and a note.

    Args:
        torch: The module, or a stand-in whose `cuda` is a `FakeCuda`.
    """
    snapshot = torch.cuda.memory._snapshot()
    lines = by_line(snapshot)
    data = pickle.dumps(snapshot)
    if len(data) > MOST_BYTES:
        data = pickle.dumps({**snapshot, "device_traces": [[] for _ in snapshot.get("device_traces", ())]})
    notes = [] if lines else [_NO_LINES]
    if len(data) > MOST_BYTES:
        notes.append(f"The snapshot of the memory is not saved, since it has {len(data) / 1e6:.0f} MB")
        data = b""
    return lines, data, ". ".join(notes)


def by_line(snapshot: Mapping[str, Any]) -> list[LiveArray]:
    """The live blocks, added up by the line of the user's code that allocated them; empty if that was not recorded."""
    sizes: dict[tuple[str, Frame], list[int]] = {}
    for device, size, frame in _blocks(snapshot):
        sizes.setdefault((device, frame), []).append(size)
    found = [
        LiveArray("", device, sum(each), f"{len(each):,} block{'s' if len(each) > 1 else ''}", frame)
        for (device, frame), each in sizes.items()
    ]
    return sorted(found, key=lambda array: -array.nbytes)[:MOST]


def _blocks(snapshot: Mapping[str, Any]) -> Iterator[tuple[str, int, Frame]]:
    """The device, the size, and the user's line of each live block for which the line is known."""
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if block["state"] in _LIVE:
                # Innermost first, among C++ frames if those were recorded.
                frames = [
                    Frame(each["filename"], each["line"], each["name"])
                    for each in reversed(block.get("frames", ()))
                    if each["filename"].endswith(".py") or each["filename"].startswith("<ipython")
                ]
                user = stack_frames.innermost_user_frame(frames)
                if user is not None:
                    yield f"cuda:{segment['device']}", block["size"], user
