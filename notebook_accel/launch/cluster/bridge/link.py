"""The bridge's connection to one node."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from notebook_accel.launch.cluster.protocol import SILENCE, Frame
from notebook_accel.launch.cluster.shared_folders import SentFolders
from notebook_accel.launch.cluster.transport import Node


class Link:
    """Sends queued frames together, and detects a silent node.

    Args:
        node: The node.
        label: The node's name as users know it.
        post: Calls a function on the bridge's thread.
        on_frame: Called with this link and a frame from the node.
        on_lost: Called with this link and the reason why the node is lost.
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
        """How many seconds its clock is ahead."""
        self.sent_folders = SentFolders()
        self.lost = ""
        """Why the node is lost; empty while it is not."""
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
        """Declares the node lost if it has been silent for too long."""
        if not self.lost and now - self._last_received > SILENCE:
            self._on_loss(f"it has sent nothing for {SILENCE:g} s")

    def _on_frames(self, frames: Sequence[Frame]) -> None:
        self._last_received = time.monotonic()
        if not self.lost:
            for frame in frames:
                self._on_frame_callback(self, frame)

    def _on_loss(self, why: str) -> None:
        if not self.lost:
            self.lost = why
            self._on_lost(self, why)
