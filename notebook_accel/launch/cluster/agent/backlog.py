"""Queues an agent's frames until they are sent."""

from __future__ import annotations

import threading
from collections import OrderedDict

from notebook_accel.launch.cluster.protocol import Frame


class Backlog:
    """A queue of frames. It keeps only the latest state of each progress bar, and all other frames."""

    def __init__(self) -> None:
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._added = 0
        self._bars: dict[object, int] = {}
        """The number of the queued frame with the latest state of each bar."""
        self._more = threading.Condition()
        self._closed = False

    def add(self, frame: Frame) -> None:
        """Adds a frame."""
        with self._more:
            self._added += 1
            bar = _bar(frame)
            if bar is not None:
                if bar in self._bars:
                    frame[0]["weight"] += self._frames.pop(self._bars[bar])[0]["weight"]  # it arrives with the new
                self._bars[bar] = self._added
            self._frames[self._added] = frame
            self._more.notify()

    def close(self) -> None:
        """Ends the queue after the frames that it holds."""
        with self._more:
            self._closed = True
            self._more.notify()

    def take(self, timeout: float) -> list[Frame] | None:
        """Removes and returns all frames; `None` if it is closed and empty.

        Waits for up to `timeout` seconds until there are any.
        """
        with self._more:
            self._more.wait_for(lambda: self._frames or self._closed, timeout)
            if self._closed and not self._frames:
                return None
            found = list(self._frames.values())
            self._frames.clear()
            self._bars.clear()
            return found


def _bar(frame: Frame) -> object:
    """A key for the bar whose state a frame contains; `None` for other frames."""
    header = frame[0]
    return None if header.get("bar") is None else (header["group"], header["rank"], header["bar"])
