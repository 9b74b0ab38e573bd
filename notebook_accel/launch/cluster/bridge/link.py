"""The bridge's connection to one node."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from notebook_accel.launch.cluster.protocol import SILENCE, Frame
from notebook_accel.launch.cluster.shared_folders import SentFolders
from notebook_accel.launch.cluster.transport import Node


class Link:
    """Sends queued frames together, and detects a node that is silent.

    Args:
        node: The node.
        label: What users call it.
        post: Calls a function on the bridge's thread.
        hear: Takes a frame.
        lose: Is told why the machine is lost.
    """

    def __init__(
        self,
        node: Node,
        label: str,
        post: Callable[[Callable[[], object]], object],
        on_frame: Callable[[Link, Frame], object],
        on_lost: Callable[[Link, str], object],
    ) -> None:
        self.label = label
        self.offset = node.offset
        """Seconds by which its clock is ahead."""
        self.sent_folders = SentFolders()
        self.lost = ""
        """Why it is lost; empty while it is not."""
        self._node = node
        self._queued: list[Frame] = []
        self._on_frame_callback = on_frame
        self._on_lost = on_lost
        self._last_received = time.monotonic()
        node.listen(lambda frames: post(lambda: self._on_frames(frames)), lambda why: post(lambda: self._on_loss(why)))

    def send(self, frame: Frame) -> None:
        """Queues a frame for the next `flush`."""
        if not self.lost:
            self._queued.append(frame)

    def flush(self) -> None:
        """Sends all queued frames."""
        if self._queued and not self.lost:
            frames, self._queued = self._queued, []
            with contextlib.suppress(OSError):
                self._node.send(frames)

    def check(self, now: float) -> None:
        """Declares the node lost if it is silent."""
        if not self.lost and now - self._last_received > SILENCE:
            self._on_loss(f"nothing has been heard of it for {SILENCE:g} s")

    def _on_frames(self, frames: Sequence[Frame]) -> None:
        self._last_received = time.monotonic()
        if not self.lost:
            for frame in frames:
                self._on_frame_callback(self, frame)

    def _on_loss(self, why: str) -> None:
        if not self.lost:
            self.lost = why
            self._on_lost(self, why)
