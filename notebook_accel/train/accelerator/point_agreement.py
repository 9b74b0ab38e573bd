"""Ranks agree on a point of the training ahead of them, for instance to save there, without a collective at every step.

All ranks pass the same points, such as the ends of steps, in the same order, each at its own pace. Any rank can request
an agreement at any time:

    rank that requests   promises not to go beyond a point a little ahead ─▶ every other rank
    every other rank     answers with a promise of its own ─▶ every other rank
    every rank           takes the farthest of the promised points, and the one after it is agreed

No rank can have passed that point, since each waits at the one that it promised until it knows the answer. The answer
usually arrives earlier, so a point costs only a comparison.
"""

from __future__ import annotations

import math
import threading
from typing import Any

from notebook_accel.train.ranks.rank_messages import LOOK_INTERVAL, RankMessages

_TOPIC = "points"
_AHEAD = 3
"""How many points ahead a rank promises to wait: the time that the exchange takes, in short steps."""
_AHEAD_ALONE = 1
"""The same for a single rank. The point after it is the first that is known one point before."""
_END = 2**62
"""A point beyond all others."""


class PointAgreement:
    """This rank's side of the agreement. Call its public methods only on the thread that trains.

    Args:
        messages: How the ranks reach each other; `None` for a single rank.
    """

    def __init__(self, messages: RankMessages | None) -> None:
        self._messages = messages
        self._rank, self._size = (0, 1) if messages is None else (messages.rank, messages.size)
        self._changed = threading.Condition()
        self._passed = 0
        self._look_at = math.inf
        """The first point at which there is something to do."""
        self._expect()
        self._reason = ""
        self._round = 0
        """The number of the next agreement."""
        self._promises: dict[int, dict[int, tuple[int, str]]] = {}
        """By agreement and rank: the point that the rank won't pass before all have answered, and the reason."""
        if messages is not None:
            messages.on(_TOPIC, self._receive)

    def request(self, reason: str) -> None:
        """Requests a point. If several ranks request one, the reason that one of them gives counts."""
        with self._changed:
            if self._rank not in self._promises.get(self._round, {}):
                self._promise(reason)

    def advance(self) -> bool:
        """Counts a point; may wait there until the other ranks have answered a request. Returns `is_next`."""
        self._passed += 1
        if self._passed < self._look_at:  # without the lock, since this is called at each step
            return False
        with self._changed:
            while self._passed >= self._wait_at and not self._is_left_alone():
                self._changed.wait(LOOK_INTERVAL)
            return self._passed + 1 >= self._agreed

    @property
    def reason(self) -> str:
        """Why this point, or an earlier one, was agreed on; empty if none was."""
        return self._reason if self._passed >= self._agreed else ""

    @property
    def is_next(self) -> bool:
        """Whether the next point, or an earlier one, was agreed on."""
        return self._passed + 1 >= self._agreed

    def settle(self) -> None:
        """Ends the agreement on this point, if there is one, so that another point can be requested."""
        if not self.reason:
            return
        with self._changed:
            self._expect()
            self._reason = ""
            del self._promises[self._round]
            self._round += 1
            self._consider()

    def close(self) -> None:
        """Called after the last point: no rank waits for this one any longer, and no agreement comes into effect."""
        with self._changed:
            self._passed = _END

    def _receive(self, rank: int, message: Any) -> None:
        """Receives the promise of another rank, on the thread of the messages."""
        number, promised, reason = message
        with self._changed:
            self._promises.setdefault(number, {})[rank] = promised, reason
            self._consider()

    def _consider(self) -> None:
        """Answers the promises of other ranks, and concludes the agreement if all have promised."""
        promises = self._promises.get(self._round)
        if not promises:
            return
        if self._rank not in promises:
            self._promise(next(iter(promises.values()))[1])
        elif len(promises) == self._size and self._agreed == math.inf:
            self._reason = promises[min(promises)][1]
            self._expect(agreed=max(promised for promised, _ in promises.values()) + 1)
            self._changed.notify_all()

    def _promise(self, reason: str) -> None:
        self._look_at = 0  # before this reads how far the training is: at a point after that, it now waits for the lock
        promised = self._passed + (_AHEAD if self._messages else _AHEAD_ALONE)
        self._expect(wait_at=promised)
        self._promises.setdefault(self._round, {})[self._rank] = promised, reason
        if self._messages is not None:
            self._messages.send(_TOPIC, [self._round, promised, reason])
        self._consider()

    def _expect(self, *, wait_at: float = math.inf, agreed: float = math.inf) -> None:
        """Sets the point at which this rank waits for answers, or the one that is agreed."""
        self._wait_at, self._agreed = wait_at, agreed
        self._look_at = min(wait_at, agreed - 1)

    def _is_left_alone(self) -> bool:
        """Whether a rank has ended without an answer. It never will, and the next collective will fail."""
        assert self._messages is not None
        missing = set(range(self._size)) - set(self._promises.get(self._round, {}))
        return any(self._messages.has_ended(rank) for rank in missing)
