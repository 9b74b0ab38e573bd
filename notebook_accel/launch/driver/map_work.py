"""The items of a map: gives them to ranks as these get ready, takes what they make of them, and tries again.

items ─▶ a chunk for a rank ─▶ its values ─▶ `MapResults`
             │                    └─ an error: each item of the chunk by itself, up to `retries` times
             └─ the rank dies: the same; chunks that it had not begun go to other ranks as they are
"""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.events import Bar, Event, Exited, ItemsDone, ItemsGiven, ItemsRequested
from notebook_accel.launch.driver.map_results import MapResults, digest_of
from notebook_accel.launch.engines.independent import Fate
from notebook_accel.launch.job.text import shortened
from notebook_accel.launch.show import console
from notebook_accel.launch.wire import map_call
from notebook_accel.launch.wire.plain_text import plain
from notebook_accel.rank_spans import counted

_AHEAD = 2
"""The chunks that a rank has at once, so that it doesn't wait for the next one."""
_CHUNK_SECONDS = 0.05
"""About how long a rank takes for a chunk."""
_MOST_ITEMS = 1024
"""The most items of a chunk."""
_MOST_BYTES = 2**22
"""About the most bytes of a chunk."""
MOST_KILLS = 20
"""How often a rank may be killed from outside at one item, or before its first, until that counts as a failure."""
_MOST_START_DEATHS = 3
"""How often a rank may die by itself before it is ready for items."""
_BAR_INTERVAL, _SAMPLE_INTERVAL = 0.1, 1.0
"""Seconds between two reports of the progress, and between two samples of the values."""
_BAR = 10**9
"""The number of the bar, which no bar of a rank has."""
_LARGEST_SAMPLE = 2**16
_SAMPLE_WIDTH = 60
_MOST_NOTICES = 5


@dataclass
class _Item:
    index: int
    digest: int
    blob: bytes
    attempts: int = 0
    kills: int = 0


@dataclass(frozen=True)
class FailedItem:
    """Stands in the list of values for an item that has failed, and isn't a value."""

    index: int
    error: str
    """Why, the last time."""
    attempts: int

    def __repr__(self) -> str:
        return f"<item {self.index} failed {counted(self.attempts, 'time')}: {self.error}>"


_Chunk = list[_Item]


class MapWork:
    """The `Work` of independent ranks.

    Args:
        items: What to give to the ranks, as `enumerate` yields it.
        total: How many there are; `None` if that is unknown.
        batch: The most items of a call; 0: one by itself.
        retries: How often an item that fails is tried again.
        results: Takes the values. Those of earlier calls may be there.
        check: Checks the first value, pickled; what it raises ends the map.
    """

    def __init__(
        self,
        items: Iterator[tuple[int, Any]],
        *,
        total: int | None,
        batch: int,
        retries: int,
        results: MapResults,
        check: Callable[[bytes], object],
    ) -> None:
        self.results = results
        self.failures: dict[int, FailedItem] = {}
        self.error: Exception | None = None
        """What has ended the map, if it was not one of the items."""
        self.seen = 0
        """How many items there were so far."""
        self.is_complete = False
        self._items: Iterator[tuple[int, Any]] | None = items
        self._total = total
        self._batch = batch
        self._retries = retries
        self._check: Callable[[bytes], object] | None = check
        self._again: deque[_Chunk] = deque()
        self._given: dict[int, deque[_Chunk]] = {}
        """What each rank that is ready has been given, and has not answered."""
        self._start_deaths: dict[int, list[int]] = {}
        """How often each rank that is not ready yet has died by itself, and from outside."""
        self._item_seconds = 0.0
        """About how long a rank takes for an item; 0 while that is unknown."""
        self._most_items = 1
        self._began: float | None = None
        self._added = 0
        self._skipped = 0
        self._next_bar = self._next_sample = 0.0
        self._sample = ""
        self._shown: tuple[int, bool] | None = None
        """What the last bar said."""
        self._notices = 0

    # For the ranks

    def begin(self, send: Callable[[int, Event], object], report: Callable[[int, Event], object]) -> None:
        self._send, self._report = send, report

    def on_event(self, rank: int, event: Event) -> bool:
        if isinstance(event, ItemsRequested):
            self._start_deaths.pop(rank, None)
            self._given[rank] = deque()
            self._began = self._began or time.monotonic()
        elif isinstance(event, ItemsDone):
            self._take(rank, event)
        else:
            self._show()  # what was held back since the last time
            return False
        self._give()
        self._show()
        return True

    def on_exit(self, rank: int, exited: Exited, *, oom_killed: bool) -> Fate:
        if self.is_complete:
            return Fate.DONE
        given = self._given.pop(rank, None)
        is_outside = exited.signal in (signal.SIGKILL, signal.SIGTERM) and not oom_killed
        if given is None:
            deaths = self._start_deaths.setdefault(rank, [0, 0])
            deaths[is_outside] += 1
            is_hopeless = deaths[False] >= _MOST_START_DEATHS or deaths[True] > MOST_KILLS
            return Fate.FAILED if is_hopeless else Fate.REPLACED
        how = f"its rank was killed by signal {exited.signal}" if exited.signal else f"its rank exited ({exited.code})"
        if oom_killed:
            how += ", since memory ran out"
        begun = given.popleft() if given else []
        self._again.extendleft(reversed(given))
        which = f" while it worked on {_named(begun)}" if begun else ""
        self._notice(f"rank {rank} {how.removeprefix('its rank ')}{which}; another process takes its place")
        is_one_call = len(begun) <= max(1, self._batch)  # otherwise any of the items may have ended the rank
        for item in reversed(begun):
            item.kills += is_outside
            self._try_again(item, how, counts=is_one_call and (not is_outside or item.kills > MOST_KILLS))
        self._give()
        return Fate.DONE if self.is_complete else Fate.REPLACED

    def _take(self, rank: int, done: ItemsDone) -> None:
        chunk = self._given[rank].popleft()
        self._item_seconds = (done.seconds / len(chunk) + (self._item_seconds or done.seconds / len(chunk))) / 2
        for item, error, value in zip(chunk, done.errors, done.data, strict=True):
            if error:
                self._try_again(item, error, counts=True)
                continue
            blob = bytes(value)
            try:
                if self._check is not None:
                    self._check(blob)
                    self._check = None
                self.results.add(item.index, item.digest, blob)
            except Exception as problem:
                self.fail(problem)
                return
            self._added += 1
        if time.monotonic() >= self._next_sample:
            self._set_sample(chunk, done)

    def _try_again(self, item: _Item, error: str, *, counts: bool) -> None:
        item.attempts += counts
        if item.attempts > self._retries:
            self.failures[item.index] = FailedItem(item.index, error, item.attempts)
            self._notice(
                f"item {item.index} has failed {counted(item.attempts, 'time')}, and is left out: "
                f"{shortened(error, 300)}"
            )
        else:
            self._again.appendleft([item])

    def _give(self) -> None:
        """Gives chunks to the ranks that have too few; the end, once nothing is left."""
        while self.error is None and (rank := self._neediest()) is not None:
            chunk = self._next_chunk()
            if not chunk:
                break
            self._given[rank].append(chunk)
            self._send(rank, ItemsGiven(self._batch, [item.blob for item in chunk]))
        if self.error is not None:
            self._again.clear()
            self._items = None
        if self._items is None and not self._again and not any(self._given.values()):
            self.is_complete = True
            for rank in self._given:
                self._send(rank, ItemsGiven())

    def _neediest(self) -> int | None:
        rank = min(self._given, key=lambda each: len(self._given[each]), default=None)
        return rank if rank is not None and len(self._given[rank]) < _AHEAD else None

    def _next_chunk(self) -> _Chunk:
        if self._again:
            return self._again.popleft()
        size, found, count = self._chunk_size(), list[_Item](), 0
        while self._items is not None and len(found) < size and count < _MOST_BYTES:
            item = self._next_item()
            if item is not None:
                found.append(item)
                count += len(item.blob)
        return found

    def _next_item(self) -> _Item | None:
        """The next item that has no value yet; `None` at the end, and for one that can't be sent."""
        assert self._items is not None
        for index, value in self._items:
            self.seen = index + 1
            try:
                blob, name = map_call.dump_named(value)
            except Exception as error:
                text = f"it can't be sent to a rank: {type(error).__name__}: {error}"
                self.failures[index] = FailedItem(index, text, 0)
                self._notice(f"item {index} is left out: {text}")
                return None
            digest = digest_of(name)
            if not self.results.has(index, digest):
                return _Item(index, digest, blob)
            self._skipped += 1
        self._items = None
        return None

    def _chunk_size(self) -> int:
        """As many items as take a rank about `_CHUNK_SECONDS`, and fewer towards the end, so that all end together."""
        least = max(1, self._batch)
        if not self._item_seconds:
            return least
        self._most_items = min(_MOST_ITEMS, 2 * self._most_items)  # slowly: the first items may be quick ones
        size = min(self._most_items, _CHUNK_SECONDS / self._item_seconds)
        if self._total is not None:
            size = min(size, (self._total - self.seen) / (_AHEAD * max(1, len(self._given))))
        return max(least, math.floor(size / least) * least)

    def fail(self, error: Exception) -> None:
        """Ends the map with an error."""
        self.error = self.error or error

    def values(self) -> Iterator[bytes]:
        """The pickled values in the order of the items, and a `FailedItem` for each that has none."""
        for index in range(self.seen):
            blob = self.results.get(index)
            yield map_call.dump_value(self.failures[index]) if blob is None else blob

    # For the user

    def _show(self) -> None:
        now = time.monotonic()
        counted = self._skipped + self._added + len(self.failures)
        state = counted, self.is_complete
        if state == self._shown or (now < self._next_bar and not self.is_complete):
            return
        self._next_bar, self._shown = now + _BAR_INTERVAL, state
        elapsed = now - (self._began or now)
        bar = Bar(
            _BAR,
            counted,
            self._total,
            description="all ranks",
            unit="item",
            rate=self._added / elapsed if self._added and elapsed else None,
            elapsed=elapsed,
            postfix=self._sample,
            closed=self.is_complete,
        )
        self._report(0, bar)

    def _set_sample(self, chunk: Sequence[_Item], done: ItemsDone) -> None:
        self._next_sample = time.monotonic() + _SAMPLE_INTERVAL
        for item, value in zip(chunk, done.data, strict=True):
            if value and len(value) <= _LARGEST_SAMPLE:
                try:
                    text = " ".join(plain(str(map_call.load(bytes(value)))).split())
                except Exception:  # the value's own text; the end tells if it can't be unpickled
                    return
                self._sample = f"{item.index}: {shortened(text, _SAMPLE_WIDTH)}"
                return

    def _notice(self, text: str) -> None:
        self._notices += 1
        if self._notices <= _MOST_NOTICES:
            console.current.notice(text)
        elif self._notices == _MOST_NOTICES + 1:
            console.current.notice("further messages about ranks and items of this map are left out")


def _named(chunk: Sequence[_Item]) -> str:
    first, last = chunk[0].index, chunk[-1].index
    return f"item {first}" if first == last else f"items {first} to {last}"


def enumerated(items: Any, fail: Callable[[Exception], object]) -> Iterator[tuple[int, Any]]:
    """The items with their indices; an exception that the iterable raises is passed to `fail`, and ends them."""
    try:
        yield from enumerate(items)
    except Exception as error:
        fail(error)
