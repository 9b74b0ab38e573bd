"""One group of ranks, as the bridge holds it: between the kernel's sockets and the machines."""

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
from notebook_accel.launch.cluster.bridge.fleet import Fleet
from notebook_accel.launch.cluster.bridge.group_start import Start
from notebook_accel.launch.cluster.bridge.link import Link
from notebook_accel.launch.cluster.bridge.payloads import Payloads
from notebook_accel.launch.cluster.bridge.relayed_rank import RelayedRank
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.cluster.transport import ClusterError
from notebook_accel.launch.engines.contract import Machines
from notebook_accel.launch.system import descriptors
from notebook_accel.launch.wire.constants import DESCRIPTORS
from notebook_accel.launch.wire.stream import Channel, Message


class Relay:
    """From the first word of the kernel about a group to its end.

    Args:
        number: By which agents know it.
        kernel: What the kernel asks of the group, and hears of it.
        selector: Of the bridge's thread.
        find: Finds machines, or fails with a `ClusterError`.
        share: Puts a blob where all machines get it from.
    """

    def __init__(
        self,
        number: int,
        kernel: Channel,
        selector: selectors.BaseSelector,
        find: Callable[[Machines, Relay], object],
        share: Callable[[bytes], Any],
    ) -> None:
        self.number = number
        self.fleet: Fleet | None = None
        self._kernel = kernel
        self._selector = selector
        self._find = find
        self._ranks: dict[int, RelayedRank] = {}
        self._order: dict[str, Any] = {}
        """What the kernel has said of the whole group."""
        self._links: list[Link] = []
        self._start: Start | None = None
        """Once there are machines."""
        self._started = False
        self._failed = False
        self._waiting: list[tuple[int | None, Frame]] = []
        """What is to be said once they have started, and to which rank; `None` for all."""
        self._payloads = Payloads(share)

    # From the kernel

    def on_kernel(self) -> bool:
        """Takes what has arrived; returns whether the group goes on."""
        messages = self._kernel.receive(wait=False)
        for message in messages or ():
            self._on_message(message)
        return messages is not None

    def _on_message(self, message: Message) -> None:
        operation, header = message.header["op"], message.header
        if operation == "meet":
            self._order = header
            for fd in message.fds:  # the machines meet elsewhere
                os.close(fd)
            descriptors.raise_limit(DESCRIPTORS * header["size"])
        elif operation == "rank":
            self._add_rank(message)
            if len(self._ranks) == self._order["size"]:
                self._find(Machines(**self._order["machines"]), self)
        elif operation == "signal":
            self._signal(header["rank"], header["signum"])
        else:
            for link in self._links:
                link.tell(self._frame(operation))

    def _add_rank(self, message: Message) -> None:
        number = message.header["rank"]
        self._order |= {name: message.header[name] for name in ("heartbeat", "pace")}
        self._ranks[number] = RelayedRank(
            message, self._selector, partial(self._on_channel, number), partial(self._tell_read, number)
        )

    def _signal(self, number: int, signum: int) -> None:
        if self._started:
            self._tell(number, self._frame("signal", rank=number, signum=signum))
        elif signum in (signal.SIGTERM, signal.SIGKILL):
            self._end(number, {"status": -signum, "at": time.time(), "peak": None})  # it has not begun, and will not

    def _on_channel(self, number: int) -> None:
        """What the kernel says to a rank."""
        rank = self._ranks[number]
        try:
            messages = rank.channel.receive(wait=False)
        except StreamError:
            messages = None
        for message in messages or ():
            if message.fds:  # a call that is no small one
                self._bring(message.fds[0])
            frame = self._frame("say", message.blobs, rank=number, header=message.header, payload=bool(message.fds))
            self._tell(number, frame)
        if messages is None:
            rank.ignore()
            self._tell(number, self._frame("finish", rank=number))

    def _bring(self, fd: int) -> None:
        """Brings a call's memory file to every machine, once."""
        blob = self._payloads.take(fd)
        if blob is not None:
            self._tell(None, self._frame("payload", [blob]))

    def _tell(self, number: int | None, frame: Frame) -> None:
        """Tells the machine of a rank, or all of them, once they have started."""
        if not self._started:
            self._waiting.append((number, frame))
            return
        link = None if number is None else self._ranks[number].link
        for each in self._links if link is None else [link]:
            each.tell(frame)

    def _tell_read(self, number: int, count: int) -> None:
        self._tell(number, self._frame("read", rank=number, bytes=count))

    def _frame(self, operation: str, blobs: Sequence[Any] = (), **more: Any) -> Frame:
        return {"op": operation, "group": self.number, **more}, blobs

    # The start

    def begin(self, fleet: Fleet) -> None:
        """Has the machines get ready."""
        self.fleet = fleet
        if all(rank.ended for rank in self._ranks.values()):
            return
        environments = {number: rank.environment for number, rank in self._ranks.items()}
        start = Start(self.number, self._order, environments, fleet)
        self._links = list(start.members)
        lost = next((link for link in self._links if link.lost), None)
        if lost is not None:
            self.fail(f"{lost.label} is lost: {lost.lost}")
            return
        for link, numbers in start.members.items():
            for number in numbers:
                self._ranks[number].link = link
        self._start = start
        start.compare()
        self._proceed()

    def on_place(self) -> None:
        """The first machine has opened a place to meet."""
        self._proceed()

    def _proceed(self) -> None:
        """Starts once all is there that it takes."""
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
        waiting, self._waiting = self._waiting, []
        for about, frame in waiting:
            self._tell(about, frame)
        for number, rank in self._ranks.items():
            if rank.ended:
                self._tell(number, self._frame("signal", rank=number, signum=int(signal.SIGKILL)))

    def fail(self, error: str) -> None:
        """Tells the kernel why the ranks can't be started."""
        self._failed = True
        self._say_kernel({"error": error})

    # From the machines

    def on_frame(self, link: Link, frame: Frame) -> None:
        """Passes on what a machine says of the group."""
        header, blobs = frame
        operation = header["op"]
        if operation == "said":
            self._ranks[header["rank"]].say(blobs, header["weight"], stacks=header["stacks"])
        elif operation == "wrote":
            self._ranks[header["rank"]].write(header["stream"], blobs[0], header["weight"])
        elif operation == "stacks":
            self._ranks[header["rank"]].keep_stacks(blobs[0])
        elif operation == "silent":
            self._ranks[header["rank"]].finish()
        elif operation == "ended":
            self._end(header["rank"], {name: header[name] for name in ("status", "at", "peak")})
        elif operation == "compared" and self._start is not None:
            self._start.on_compared(link, header["lacking"])
            self._proceed()
        elif operation == "failed":
            self.fail(f"{link.label}: {header['error']}")

    def on_loss(self, link: Link, why: str) -> None:
        """A machine is gone, and its ranks with it."""
        if link in self._links and not self._started:
            self.fail(f"{link.label} is lost: {why}")
        for number, rank in self._ranks.items():
            if rank.link is link:
                self._end(number, {"status": None, "at": time.time(), "peak": None, "lost": f"{link.label}: {why}"})

    def _end(self, number: int, how: dict[str, Any]) -> None:
        self._ranks[number].end(lambda: self._say_kernel({"rank": number, **how}))

    def _say_kernel(self, header: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has just closed the group
            self._kernel.send(header)

    # The end

    def close(self) -> None:
        """The kernel has closed the group."""
        if self._start is not None:
            self._start.close()
        for link in self._links:
            link.tell(self._frame("close"))
        for rank in self._ranks.values():
            rank.close()
        self._payloads.close()
        self._kernel.close()
        self._links = []
