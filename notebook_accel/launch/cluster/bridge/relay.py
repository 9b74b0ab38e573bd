"""Relays one group of ranks between the kernel and the nodes: requests to the nodes of their ranks, events back."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from notebook_accel.events import Event, Exited, NodeLeaving
from notebook_accel.launch.cluster import event_frames
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.bridge.group_start import GroupStart
from notebook_accel.launch.cluster.bridge.node import Node
from notebook_accel.launch.cluster.bridge.node_pool import NodePool
from notebook_accel.launch.cluster.clock_offset import SAME_CLOCK
from notebook_accel.launch.cluster.event_frames import EventFrames
from notebook_accel.launch.cluster.frame_queue import FrameQueue
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.engines.contract import NodeRequest
from notebook_accel.launch.system import memory
from notebook_accel.launch.wire.stream import Channel, Message


class Relay:
    """One group, from the kernel's first request to its end.

    Args:
        number: The group's number, by which agents know it.
        kernel: The kernel's end of the group.
        find: Finds nodes, or fails with a `ClusterError`.
    """

    def __init__(self, number: int, kernel: Channel, find: Callable[[NodeRequest, Relay], object]) -> None:
        self.number = number
        self.pool: NodePool | None = None
        self._kernel = kernel
        self._to_kernel = FrameQueue(self._send_to_kernel, kernel.close)
        self._find = find
        self._spec: dict[str, Any] = {}
        """The kernel's parameters of the whole group."""
        self._running: set[int] = set()
        """Ranks that have not ended, as far as the kernel knows."""
        self._start: GroupStart | None = None
        """`None` until there are nodes."""
        self._nodes: dict[int, Node] = {}
        """The node of each rank."""
        self._started = False
        self._failed = False
        self._queued: list[Frame] = []
        """Requests to send once the ranks have started."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that all ranks share."""
        shared: Mapping[str, str] = self._spec["environment"]
        return shared

    def flush(self) -> None:
        """Sends the kernel what is queued for it, without waiting."""
        self._to_kernel.flush()

    # From the kernel

    def on_kernel(self) -> bool:
        """Handles requests that have arrived; returns whether the group continues."""
        messages = self._kernel.receive(wait=False)
        for message in messages or ():
            self._on_request(message)
        return messages is not None

    def _on_request(self, message: Message) -> None:
        header = message.header
        if header["op"] == "start":
            self._spec = header
            self._running.update(range(header["size"]))
            wanted = {**header["node_request"], "excluded": tuple(header["node_request"]["excluded"])}
            self._find(NodeRequest(**wanted), self)
        elif header["op"] == "payload":
            self._send(header, [_content(message.fds)])
        elif header["op"] == "signal" and not self._started:
            if header["signum"] in (signal.SIGTERM, signal.SIGKILL):  # it has not started, and will not
                self._end(header["ranks"], Exited(code=None, signal=header["signum"], at=time.time()))
        else:
            self._send(header, message.blobs)

    def _send(self, header: dict[str, Any], blobs: Sequence[Any] = ()) -> None:
        """Sends a request to the nodes of its ranks, or to all, once the ranks have started."""
        if not self._started:
            self._queued.append((header, blobs))
            return
        by_node: dict[Node, list[int]] = defaultdict(list)
        for rank in header.get("ranks", self._nodes):
            by_node[self._nodes[rank]].append(rank)
        for node, ranks in by_node.items():
            node.send(({**header, "group": self.number, "ranks": ranks}, blobs))

    # The start

    def begin(self, pool: NodePool) -> None:
        """Prepares the nodes, and starts the ranks as soon as they are ready."""
        self.pool = pool
        if not self._running:
            return
        start = GroupStart(self.number, self._spec, pool)
        self._nodes = {rank: node for node, ranks in start.members.items() for rank in ranks}
        lost = next((node for node in start.members if node.lost), None)
        if lost is not None:
            self.fail(f"{lost.label} is lost: {lost.lost}")
            return
        self._start = start
        start.compare()
        self._proceed()

    def on_rendezvous(self) -> None:
        """Handles the rendezvous that the first node has opened."""
        self._proceed()

    def _proceed(self) -> None:
        """Starts the ranks once all nodes are ready."""
        if self._start is None or self._started or self._failed:
            return
        try:
            self._start.proceed()
        except ClusterError as error:
            self.fail(str(error))
        if self._start.done:
            self._on_started()

    def _on_started(self) -> None:
        self._started = True
        for header, blobs in self._queued:
            self._send(header, blobs)
        self._queued.clear()
        ended = [rank for rank in self._nodes if rank not in self._running]
        self._send({"op": "signal", "ranks": ended, "signum": int(signal.SIGKILL)})

    def fail(self, error: str) -> None:
        """Sends the kernel why the ranks can't be started."""
        self._failed = True
        self._to_kernel.add(({"op": "failed", "error": error}, ()))

    # From the nodes

    def on_frame(self, node: Node, frame: Frame) -> None:
        """Passes on a node's frame."""
        header, _ = frame
        operation = header["op"]
        if operation == "events" and header["rank"] in self._running:
            self._to_kernel.add(frame)
            if header["ended"]:
                self._running.discard(header["rank"])
        elif operation == "compared" and self._start is not None:
            self._start.on_compared(node, header["lacking"])
            self._proceed()
        elif operation == "failed":
            self.fail(f"{node.label}: {header['error']}")

    def on_loss(self, node: Node, why: str) -> None:
        """Handles the loss of a node, with its ranks."""
        ranks = [rank for rank, each in self._nodes.items() if each is node]
        if ranks and not self._started:
            self.fail(f"{node.label} is lost: {why}")
        self._end(ranks, Exited(code=None, at=time.time(), lost=f"{node.label}: {why}"))

    def on_leaving(self, node: Node) -> None:
        """Handles that a node shuts down."""
        for rank, each in self._nodes.items():
            if each is node and rank in self._running:
                self._report(rank, NodeLeaving())

    def _end(self, ranks: Iterable[int], exited: Exited) -> None:
        """Reports the end of ranks whose nodes can't report it."""
        for rank in self._running.intersection(ranks):
            self._running.discard(rank)
            self._report(rank, exited)

    def _report(self, rank: int, event: Event) -> None:
        """Sends the kernel an event of a rank that is not from its node."""
        frames = EventFrames(self.number, "", SAME_CLOCK)
        header, blobs = event_frames.coalesce([frames.of(rank, event)])[0]
        self._to_kernel.add(({**header, "weight": 0}, blobs))  # its node has not counted it

    def _send_to_kernel(self, frames: Sequence[Frame]) -> None:
        for header, blobs in frames:
            self._kernel.send(header, blobs)

    # The end

    def close(self) -> None:
        """Ends the group after the kernel has closed it."""
        if self._start is not None:
            self._start.close()
        for node in dict.fromkeys(self._nodes.values()):
            node.send(({"op": "close", "group": self.number}, ()))
        self._nodes = {}
        self._to_kernel.close()


def _content(fds: Sequence[int]) -> bytes:
    """The content of memory files, which are closed."""
    try:
        return memory.read_all(fds)
    finally:
        memory.close(fds)
