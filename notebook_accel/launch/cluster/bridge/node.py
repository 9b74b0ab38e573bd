"""A node of the bridge: the connection to its agent."""

from __future__ import annotations

import time
from collections.abc import Callable

from notebook_accel.errors import StreamError
from notebook_accel.launch.cluster.bridge.agents import ConnectedAgent
from notebook_accel.launch.cluster.frame_queue import FrameQueue
from notebook_accel.launch.cluster.protocol import SILENCE, Frame
from notebook_accel.launch.cluster.shared_folders import SentFolders
from notebook_accel.launch.wire.event_loop import EventLoop


class Node:
    """Sends frames, receives frames on the bridge's thread, and detects a silent node.

    Args:
        agent: The node's agent.
        label: The node's name as users know it.
        loop: The event loop of the bridge's thread.
        on_frame: Called with this node and a frame from it.
        on_lost: Called with this node and the reason why it is lost.
    """

    def __init__(
        self,
        agent: ConnectedAgent,
        label: str,
        loop: EventLoop,
        on_frame: Callable[[Node, Frame], object],
        on_lost: Callable[[Node, str], object],
    ) -> None:
        self.label = label
        self.clock = agent.clock
        self.sent_folders = SentFolders()
        self.lost = ""
        """Why the node is lost; empty while it is not."""
        self.leaving = False
        """Whether the node shuts down. Its ranks may still save a checkpoint."""
        self._connection = agent.connection
        self._loop = loop
        self._outgoing = FrameQueue(agent.connection.send, agent.connection.close)
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._last_received = time.monotonic()
        loop.register(self._connection, self._receive)

    def send(self, frame: Frame) -> None:
        """Queues a frame for the next `flush`."""
        if not self.lost:
            self._outgoing.add(frame)

    def flush(self) -> None:
        """Sends all queued frames, without waiting."""
        self._outgoing.flush()

    def check(self, now: float) -> None:
        """Declares the node lost if it has been silent for too long."""
        if not self.lost and now - self._last_received > SILENCE:
            self._lose(f"it has sent nothing for {SILENCE:g} s")

    def close(self) -> None:
        """Sends queued frames, and disconnects. The agent then ends."""
        self._lose("the bridge has disconnected", report=False)

    def _receive(self) -> None:
        try:
            frames = self._connection.receive()
        except EOFError:
            self._lose("it has shut down" if self.leaving else "its agent has ended")
        except (OSError, StreamError) as error:
            self._lose(f"the connection broke: {error}")
        else:
            self._last_received = time.monotonic()
            for frame in frames:
                self._on_frame(self, frame)

    def _lose(self, why: str, *, report: bool = True) -> None:
        if self.lost:
            return
        self.lost = why
        self._loop.unregister(self._connection)
        if report:
            self._connection.shut()  # it may still be connected, and only silent
            self._on_lost(self, why)
        self._outgoing.close()
