"""Relays one group of ranks between the kernel's sockets and the nodes."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from notebook_accel.errors import StreamError
from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.bridge.group_start import GroupStart
from notebook_accel.launch.cluster.bridge.node import Node
from notebook_accel.launch.cluster.bridge.node_pool import NodePool
from notebook_accel.launch.cluster.bridge.payloads import Payloads
from notebook_accel.launch.cluster.bridge.relayed_rank import RelayedRank
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.engines.contract import NodeRequest
from notebook_accel.launch.system import open_file_limit
from notebook_accel.launch.wire.constants import DESCRIPTORS
from notebook_accel.launch.wire.stream import Channel, Message


class Relay:
    """One group, from the kernel's first request to its end.

    Args:
        number: The group's number, by which agents know it.
        kernel: Receives requests for the group, and sends how its ranks ended.
        selector: The selector of the bridge's thread.
        find: Finds nodes, or fails with a `ClusterError`.
    """

    def __init__(
        self,
        number: int,
        kernel: Channel,
        selector: selectors.BaseSelector,
        find: Callable[[NodeRequest, Relay], object],
    ) -> None:
        self.number = number
        self.pool: NodePool | None = None
        self._kernel = kernel
        self._selector = selector
        self._find = find
        self._ranks: dict[int, RelayedRank] = {}
        self._spec: dict[str, Any] = {}
        """The kernel's parameters of the whole group."""
        self._nodes: list[Node] = []
        self._start: GroupStart | None = None
        """`None` until there are nodes."""
        self._started = False
        self._failed = False
        self._queued: list[tuple[int | None, Frame]] = []
        """Frames to send once the ranks have started, and to which rank; `None` for all nodes."""
        self._payloads = Payloads()

    # From the kernel

    def on_kernel(self) -> bool:
        """Handles messages that have arrived; returns whether the group continues."""
        messages = self._kernel.receive(wait=False)
        for message in messages or ():
            self._on_message(message)
        return messages is not None

    def _on_message(self, message: Message) -> None:
        operation, header = message.header["op"], message.header
        if operation == "meet":
            self._spec = header
            for fd in message.fds:  # the nodes use another rendezvous
                os.close(fd)
            open_file_limit.raise_limit(DESCRIPTORS * header["size"])
        elif operation == "rank":
            self._add_rank(message)
            if len(self._ranks) == self._spec["size"]:
                self._find(NodeRequest(**self._spec["node_request"]), self)
        elif operation == "signal":
            self._signal(header["rank"], header["signum"])
        else:
            for node in self._nodes:
                node.send(self._frame(operation))

    def _add_rank(self, message: Message) -> None:
        number = message.header["rank"]
        self._spec |= {name: message.header[name] for name in ("heartbeat", "pace")}
        self._ranks[number] = RelayedRank(
            message, self._selector, partial(self._on_channel, number), partial(self._send_read, number)
        )

    def _signal(self, number: int, signum: int) -> None:
        if self._started:
            self._send(number, self._frame("signal", rank=number, signum=signum))
        elif signum in (signal.SIGTERM, signal.SIGKILL):
            self._end_rank(
                number, {"status": -signum, "at": time.time(), "peak": None}
            )  # it has not started, and will not

    def _on_channel(self, number: int) -> None:
        """Passes on the kernel's messages to a rank."""
        rank = self._ranks[number]
        try:
            messages = rank.channel.receive(wait=False)
        except StreamError:
            messages = None
        for message in messages or ():
            if message.fds:  # a large call
                self._send_payload(message.fds[0])
            frame = self._frame("say", message.blobs, rank=number, header=message.header, payload=bool(message.fds))
            self._send(number, frame)
        if messages is None:
            rank.stop_reading()
            self._send(number, self._frame("finish", rank=number))

    def _send_payload(self, fd: int) -> None:
        """Sends a call's memory file to every node, once."""
        blob = self._payloads.take(fd)
        if blob is not None:
            self._send(None, self._frame("payload", [blob]))

    def _send(self, number: int | None, frame: Frame) -> None:
        """Sends a frame to the node of a rank, or to all, once they have started."""
        if not self._started:
            self._queued.append((number, frame))
            return
        node = None if number is None else self._ranks[number].node
        for each in self._nodes if node is None else [node]:
            each.send(frame)

    def _send_read(self, number: int, count: int) -> None:
        self._send(number, self._frame("read", rank=number, bytes=count))

    def _frame(self, operation: str, blobs: Sequence[Any] = (), **more: Any) -> Frame:
        return {"op": operation, "group": self.number, **more}, blobs

    # The start

    def begin(self, pool: NodePool) -> None:
        """Prepares the nodes, and starts the ranks as soon as they are ready."""
        self.pool = pool
        if all(rank.ended for rank in self._ranks.values()):
            return
        environments = {number: rank.environment for number, rank in self._ranks.items()}
        start = GroupStart(self.number, self._spec, environments, pool)
        self._nodes = list(start.members)
        lost = next((node for node in self._nodes if node.lost), None)
        if lost is not None:
            self.fail(f"{lost.label} is lost: {lost.lost}")
            return
        for node, numbers in start.members.items():
            for number in numbers:
                self._ranks[number].node = node
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
        waiting, self._queued = self._queued, []
        for about, frame in waiting:
            self._send(about, frame)
        for number, rank in self._ranks.items():
            if rank.ended:
                self._send(number, self._frame("signal", rank=number, signum=int(signal.SIGKILL)))

    def fail(self, error: str) -> None:
        """Sends the kernel why the ranks can't be started."""
        self._failed = True
        self._send_kernel({"error": error})

    # From the nodes

    def on_frame(self, node: Node, frame: Frame) -> None:
        """Passes on a node's frame."""
        header, blobs = frame
        operation = header["op"]
        if operation == "said":
            self._ranks[header["rank"]].say(blobs, header["weight"], stacks=header["stacks"])
        elif operation == "wrote":
            self._ranks[header["rank"]].write(header["stream"], blobs[0], header["weight"])
        elif operation == "stacks":
            self._ranks[header["rank"]].write_stacks(blobs[0])
        elif operation == "silent":
            self._ranks[header["rank"]].finish()
        elif operation == "ended":
            self._end_rank(header["rank"], {name: header[name] for name in ("status", "at", "peak")})
        elif operation == "compared" and self._start is not None:
            self._start.on_compared(node, header["lacking"])
            self._proceed()
        elif operation == "failed":
            self.fail(f"{node.label}: {header['error']}")

    def on_loss(self, node: Node, why: str) -> None:
        """Handles the loss of a node, with its ranks."""
        if node in self._nodes and not self._started:
            self.fail(f"{node.label} is lost: {why}")
        for number, rank in self._ranks.items():
            if rank.node is node:
                self._end_rank(
                    number, {"status": None, "at": time.time(), "peak": None, "lost": f"{node.label}: {why}"}
                )

    def _end_rank(self, number: int, how: dict[str, Any]) -> None:
        self._ranks[number].end(lambda: self._send_kernel({"rank": number, **how}))

    def _send_kernel(self, header: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has just closed the group
            self._kernel.send(header)

    # The end

    def close(self) -> None:
        """Ends the group after the kernel has closed it."""
        if self._start is not None:
            self._start.close()
        for node in self._nodes:
            node.send(self._frame("close"))
        for rank in self._ranks.values():
            rank.close()
        self._payloads.close()
        self._kernel.close()
        self._nodes = []
