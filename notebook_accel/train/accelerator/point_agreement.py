"""Ranks agree on a point of the training ahead of them, for instance to save there, without a collective at every step.

All ranks pass the same points, such as the ends of steps, in the same order, each in its own time. Any rank requests an
agreement, at any moment:

    rank that requests   store: request ─▶ every rank's thread
    every rank's thread  promises not to go beyond a point a little ahead ─▶ store ─▶ every rank's thread
    every rank's thread  takes the farthest of the promised points, and the one after it is agreed

No rank can have passed that point, since each waits at the one that it promised until it knows the answer. The answer
is usually there before, so a point costs a comparison.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import threading
from collections.abc import Callable

from torch._C._distributed_c10d import Store
from torch.distributed import DistStoreError

_AHEAD = 3
"""How many points ahead a rank promises to wait: the time that the exchange takes, in short steps."""
_CLOSE = "close"
_WAIT = datetime.timedelta(hours=1)
_JOIN = 5.0
"""Seconds to wait for the thread at the end. It ends at once, unless the store is gone without an error."""


class PointAgreement:
    """This rank's side; every method is for the thread of the training.

    Args:
        rank: This rank.
        size: The number of ranks.
        connect: Makes a connection to the store that all ranks share; `None` for a single rank.
    """

    def __init__(self, rank: int, size: int, connect: Callable[[], Store] | None) -> None:
        self._rank = rank
        self._size = size
        self._changed = threading.Condition()
        self._passed = 0
        self._wait_at = math.inf
        self._agreed = math.inf
        self._reason = ""
        self._round = 0
        self._store = None if connect is None else connect()
        self._thread: threading.Thread | None = None
        if connect is not None:
            self._thread = threading.Thread(target=self._serve, args=(connect(),), name="checkpoints", daemon=True)
            self._thread.start()

    def request(self, reason: str) -> None:
        """Requests a point. Where several ranks request one, the first reason counts."""
        if self._store is not None:
            self._store.compare_set(f"{self._round}/request", "", reason)
        elif self._agreed == math.inf:
            self._agreed, self._reason = self._passed + 2, reason

    def advance(self) -> None:
        """Counts a point; may wait there until the other ranks have answered a request."""
        with self._changed:
            self._passed += 1
            while self._passed >= self._wait_at:
                self._changed.wait()

    @property
    def reason(self) -> str:
        """Why this is an agreed point, or one was agreed that has been passed; empty otherwise."""
        return self._reason if self._passed >= self._agreed else ""

    @property
    def is_next(self) -> bool:
        """Whether the next point is agreed, or one was that has been passed."""
        return self._passed + 1 >= self._agreed

    def settle(self) -> None:
        """Ends the agreement on this point, if there is one; another point can then be requested."""
        if not self.reason:
            return
        with self._changed:
            self._agreed, self._reason = math.inf, ""
            self._round += 1
            self._changed.notify_all()

    def abandon(self) -> None:
        """Ends the threads of all ranks if the store can still be reached, and waits for none."""
        if self._thread is not None:
            with contextlib.suppress(Exception):
                self.request(_CLOSE)

    def close(self) -> None:
        """Ends the thread, after the last point."""
        if self._thread is None:
            return
        self.abandon()
        with self._changed:
            self._passed = 2**62  # no later point is waited for, and if one is agreed, then none that there is
            self._changed.notify_all()
        self._thread.join(_JOIN)
        self._thread = None

    def _serve(self, store: Store) -> None:
        try:
            while self._answer(store):
                pass
        except Exception:  # the store is gone: so are other ranks, which the next collective shows
            pass
        finally:
            with self._changed:
                self._wait_at = math.inf
                self._changed.notify_all()

    def _answer(self, store: Store) -> bool:
        """Takes part in one agreement; returns whether there may be another."""
        number = self._round
        try:
            store.wait([f"{number}/request"], _WAIT)
        except DistStoreError:  # nobody requested anything
            return True
        reason = store.get(f"{number}/request").decode()
        if reason == _CLOSE:
            return False
        with self._changed:
            self._wait_at = self._passed + _AHEAD
            promised = self._wait_at
        store.set(f"{number}/promise/{self._rank}", str(promised))
        keys = [f"{number}/promise/{rank}" for rank in range(self._size)]
        store.wait(keys, _WAIT)
        farthest = max(map(int, store.multi_get(keys)))
        with self._changed:
            self._agreed, self._reason = farthest + 1, reason
            self._wait_at = math.inf
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._round > number or self._passed >= 2**62)
        return self._round > number
