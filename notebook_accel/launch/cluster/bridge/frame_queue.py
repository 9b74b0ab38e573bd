"""Sends frames on a thread of their own, so that a slow reader does not block the bridge."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence

from notebook_accel.launch.cluster.protocol import Frame


class FrameQueue:
    """The frames for one connection, in order.

    Args:
        send: Sends frames; may block.
        close: Closes the connection, after the last frame.
    """

    def __init__(self, send: Callable[[Sequence[Frame]], object], close: Callable[[], object]) -> None:
        self._send = send
        self._close = close
        self._queued: list[Frame] = []
        self._outgoing: queue.SimpleQueue[Sequence[Frame] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="notebook-accel-send", daemon=True).start()

    def add(self, frame: Frame) -> None:
        """Queues a frame for the next `flush`."""
        self._queued.append(frame)

    def flush(self) -> None:
        """Sends all queued frames together, without waiting."""
        if self._queued:
            self._outgoing.put(self._queued)
            self._queued = []

    def close(self) -> None:
        """Sends all queued frames, then closes the connection; does not wait for that."""
        self.flush()
        self._outgoing.put(None)

    def _run(self) -> None:
        while (frames := self._outgoing.get()) is not None:
            with contextlib.suppress(OSError):  # the other end is gone, which the code that reads from it finds
                self._send(frames)
        self._close()
