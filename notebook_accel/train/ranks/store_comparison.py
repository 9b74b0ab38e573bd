"""Compares what the ranks have found, through the store by which they joined.

Each rank writes what it has found, and the last one to do so reads all of it. So no rank waits for another, not even if
only some of them get there.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import torch.distributed as dist

from notebook_accel import rank_local
from notebook_accel.train.ranks import collective_check

_LINES = f"{__name__}.lines"


class StoreComparison:
    """What corresponding objects of the ranks have to agree on, such as their loaders.

    They correspond if the same line of the user's has made them, at the same time of those that it has run.

    Args:
        subject: What is compared.

    Attributes:
        line: The user's line that has made it, in words.
        frame: Its file and its number.
    """

    def __init__(self, subject: str) -> None:
        frame = collective_check.user_frame()
        self.line = "an unknown line" if frame is None else collective_check.name_line(frame)
        self.frame = ("<unknown>", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
        counts = rank_local.space().setdefault(_LINES, {})
        counts[subject, self.frame] = number = counts.get((subject, self.frame), 0) + 1
        self._key = f"notebook_accel/{subject}/{self.frame}/{number}"

    def exchange(self, found: Any, point: int = 0) -> list[Any]:
        """Writes what this rank has found, which has to be JSON.

        Args:
            found: What it has found.
            point: When it did. What is found at different points isn't compared.

        Returns:
            What each rank has found, on the last rank that calls this; an empty list on the others.
        """
        if not dist.is_initialized():
            return []
        store, ranks, key = dist.distributed_c10d._get_default_store(), dist.get_world_size(), f"{self._key}/{point}"
        with contextlib.suppress(RuntimeError):  # a store that has closed compares nothing
            store.set(f"{key}/{dist.get_rank()}", json.dumps(found))
            if store.add(f"{key}/count", 1) == ranks:
                return [json.loads(store.get(f"{key}/{rank}")) for rank in range(ranks)]
        return []
