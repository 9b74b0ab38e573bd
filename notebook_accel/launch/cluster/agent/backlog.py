"""Queues an agent's frames until the bridge has acknowledged them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from notebook_accel.launch.cluster.protocol import Frame, weight

_MOST = 16 * 2**20
"""Bytes of one answer; a larger frame is sent alone."""


class Backlog:
    """A queue of frames. It keeps only the latest state of each progress bar, and all other frames."""

    def __init__(self) -> None:
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._added = 0
        self._bars: dict[object, int] = {}
        """The number of the frame with the latest state of each bar."""
        self._sent = 0
        """The number of the last frame that was handed out, even if it did not arrive."""
        self._more = threading.Condition()

    def add(self, frame: Frame) -> None:
        """Adds a frame."""
        with self._more:
            bar = _bar(frame)
            if bar is not None:
                before = self._bars.get(bar, 0)
                if before > self._sent:
                    frame[0]["weight"] += self._frames.pop(before)[0]["weight"]  # it arrives with the new
                self._bars[bar] = self._added + 1
            self._added += 1
            self._frames[self._added] = frame
            self._more.notify()

    def take(self, after: int, wait: float) -> tuple[int, list[Frame]]:
        """Drops the frames up to `after`, which have arrived; returns the last number and the frames of the next batch.

        Waits for up to `wait` seconds until there are any.
        """
        deadline = time.monotonic() + wait
        with self._more:
            while self._frames and next(iter(self._frames)) <= after:
                self._frames.popitem(last=False)
            if not self._frames:
                self._bars.clear()
            while not self._frames and (left := deadline - time.monotonic()) > 0:
                self._more.wait(left)
            found: list[Frame] = []
            size = 0
            for number, frame in self._frames.items():
                size += weight(frame[1])
                if found and size > _MOST:
                    break
                found.append(frame)
                after = number
            self._sent = max(self._sent, after)
            return after, found


def _bar(frame: Frame) -> object:
    """A key for the bar whose state a frame contains; `None` for other frames."""
    header = frame[0]
    return None if header.get("bar") is None else (header["group"], header["rank"], header["bar"])
