"""How the threads that write checkpoints exchange texts with those of the other ranks, while the training continues."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

from notebook_accel.errors import CheckpointError
from notebook_accel.train.ranks.messages.rank_messages import RankMessages

_TOPIC = "checkpoints"
_LOOK_INTERVAL = 1.0
"""Seconds after which a rank that waits looks again whether the others run."""


class GatheredTexts:
    """Sends a text of each rank to all; `gather` is an `all_ranks.Gather`, for one thread at a time."""

    def __init__(self, messages: RankMessages) -> None:
        self._messages = messages
        self._changed = threading.Condition()
        self._number = 0
        self._texts: defaultdict[int, dict[int, str | None]] = defaultdict(dict)
        """By the number of the exchange, and by rank."""
        messages.on(_TOPIC, self._receive)

    def gather(self, task: str, text: str | None) -> list[str | None]:
        """Waits for the text of each rank.

        Raises:
            CheckpointError: Another rank has ended.
        """
        del task
        number, self._number = self._number, self._number + 1
        self._messages.send(_TOPIC, [number, text])
        with self._changed:
            found = self._texts[number]
            found[self._messages.rank] = text
            while missing := set(range(self._messages.size)) - set(found):
                if ended := [rank for rank in missing if self._messages.has_ended(rank)]:
                    raise CheckpointError(f"rank {ended[0]} has ended")
                self._changed.wait(_LOOK_INTERVAL)
            del self._texts[number]
        return [text for _, text in sorted(found.items())]

    def _receive(self, rank: int, message: Any) -> None:
        number, text = message
        with self._changed:
            self._texts[number][rank] = text
            self._changed.notify_all()


def alone(task: str, text: str | None) -> list[str | None]:
    """The same for a single rank."""
    del task
    return [text]
