"""Reads collectives from torch's flight recorder: which are outstanding, and the last ones. Does not import torch.

With NCCL a collective only queues work on the device and returns, so no stack shows it; the recorder does, as long as
`TORCH_FR_BUFFER_SIZE` (in older versions `TORCH_NCCL_TRACE_BUFFER_SIZE`) is above 0.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from notebook_accel.events import Collective, CollectivesRecorded, CollectivesRequested
from notebook_accel.launch.wire.constants import RECORDER_SIZES

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""The private function of torch that returns the recorder's contents, in newer and in older versions."""

_BYTES = {
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Float", "Int", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Double", "Long", "UInt64", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
"""The size of an element by the name of its type; others take one byte."""
_OFF = f"torch records no collectives here: update torch, or remove {RECORDER_SIZES[0]}=0 from the environment"

Outstanding = tuple[tuple[str, str, str], ...]
"""For each process group: its number, that of the last collective queued, and that of the last completed."""


def outstanding() -> Outstanding:
    """The groups with collectives that are queued and not completed. Takes 20 µs."""
    status = _dump(includeCollectives=False).get("pg_status", {})
    found = []
    for group, counters in status.items():
        queued = counters.get("last_enqueued_collective", "-1")
        done = counters.get("last_completed_collective", "-1")
        if int(done) < int(queued):
            found.append((str(group), str(queued), str(done)))
    return tuple(found)


def name_of(outstanding: Outstanding) -> str:
    """The oldest outstanding collective of the first of the groups, such as `all_reduce`. Takes milliseconds."""
    group, queued, done = outstanding[0]
    for entry in _dump(includeCollectives=True).get("entries", ()):
        if str(entry.get("pg_id")) == group and int(done) < entry.get("collective_seq_id", -1) <= int(queued):
            return str(entry.get("profiling_name", "")).rpartition(":")[2] or "a collective"
    return "a collective"


def last(request: CollectivesRequested) -> CollectivesRecorded:
    """The last collectives, also those that C++ code calls, such as DDP's. Takes some 50 ms."""
    now = time.time()
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return CollectivesRecorded(request.number, [], at=now)
    dumped = _dump(includeCollectives=True)
    entries = dumped.get("entries", [])
    found = [_collective(entry, now) for entry in entries[-request.most :]]
    return CollectivesRecorded(request.number, found, _OFF if not dumped or _is_off() else "", now)


def _is_off() -> bool:
    return next((os.environ[name] for name in RECORDER_SIZES if name in os.environ), "") == "0"


def _collective(entry: dict[str, Any], now: float) -> Collective:
    group, label = entry["process_group"]
    shapes, kinds = entry["input_sizes"], entry["input_dtypes"]
    created, completed = entry["time_created_ns"], entry.get("time_discovered_completed_ns") or 0
    between_two = bool(entry["is_p2p"])
    return Collective(
        group=str(group),
        group_label=str(label),
        number=entry["p2p_seq_id" if between_two else "collective_seq_id"],
        operation=str(entry["profiling_name"]).rpartition(":")[2],
        shapes=", ".join(f"{kind.lower()}{shape}" for kind, shape in zip(kinds, shapes, strict=False)),
        size=sum(math.prod(shape) * _BYTES.get(kind, 1) for kind, shape in zip(kinds, shapes, strict=False)),
        seconds_ago=now - created / 1e9,
        done=bool(entry["retired"]) or entry["state"] == "completed",
        seconds=(completed - created) / 1e9 if completed else None,
        between_two=between_two,
    )


def _dump(**options: bool) -> dict[str, Any]:
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    dump: Callable[..., bytes] | None = next((getattr(c10d, name) for name in _DUMPS if hasattr(c10d, name)), None)
    found: Any = None
    if dump is not None:
        with contextlib.suppress(Exception):  # it is private, and another version may differ
            found = json.loads(dump(**options))
    return found if isinstance(found, dict) else {}
