"""Reads from torch's flight recorder which collectives are outstanding. Does not import torch.

With NCCL a collective only queues work on the device and returns, so no stack shows it; the recorder does, as long as
`TORCH_FR_BUFFER_SIZE` (in older versions `TORCH_NCCL_TRACE_BUFFER_SIZE`) is above 0.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""The private function of torch that returns the recorder's contents, in newer and in older versions."""

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


def _dump(**options: bool) -> dict[str, Any]:
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    dump: Callable[..., bytes] | None = next((getattr(c10d, name) for name in _DUMPS if hasattr(c10d, name)), None)
    found: Any = None
    if dump is not None:
        with contextlib.suppress(Exception):  # it is private, and another version may differ
            found = json.loads(dump(**options))
    return found if isinstance(found, dict) else {}
