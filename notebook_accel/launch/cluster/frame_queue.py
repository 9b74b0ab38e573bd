"""Sends frames on a thread of their own, so that a slow reader blocks neither the bridge nor an agent."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

from notebook_accel.launch.cluster.protocol import Frame


class FrameQueue:
    """The frames for one connection, in order. Of each progress bar, only the latest state waits.

    Args:
        send: Sends frames; may block. If it fails, the other end is gone, which the code that reads from it finds.
        close: Closes the connection, after the last frame.
        idle: Seconds without a frame after which `send` is called with none; by default, it isn't.
    """

    def __init__(
        self, send: Callable[[Sequence[Frame]], object], close: Callable[[], object], *, idle: float | None = None
    ) -> None:
        self._send = send
        self._close = close
        self._idle = idle
        self._frames: OrderedDict[int, Frame] = OrderedDict()
        self._added = 0
        self._bars: dict[object, int] = {}
        """The number of the queued frame with the latest state of each bar."""
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="notebook-accel-send", daemon=True)
        self._thread.start()

    def add(self, frame: Frame) -> None:
        """Queues a frame, which is sent after the next `flush` at the latest."""
        with self._changed:
            self._added += 1
            bar = _bar(frame)
            if bar is not None:
                if bar in self._bars:
                    frame[0]["weight"] += self._frames.pop(self._bars[bar])[0]["weight"]  # it arrives with the new
                self._bars[bar] = self._added
            self._frames[self._added] = frame

    def flush(self) -> None:
        """Sends all queued frames together, without waiting."""
        with self._changed:
            if self._frames:
                self._changed.notify()

    def close(self) -> None:
        """Sends all queued frames, then closes the connection; does not wait for that."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Waits until the connection is closed, for at most so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while (frames := self._take()) is not None:
            with contextlib.suppress(OSError):
                self._send(frames)
        self._close()

    def _take(self) -> list[Frame] | None:
        """Waits for frames, and removes them; `None` once it is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._frames or self._is_closed, self._idle)
            if self._is_closed and not self._frames:
                return None
            found = list(self._frames.values())
            self._frames.clear()
            self._bars.clear()
            return found


def _bar(frame: Frame) -> object:
    """A key for the bar whose state a frame contains; `None` for other frames."""
    header = frame[0]
    return None if header.get("bar") is None else (header["group"], header["rank"], header["bar"])
