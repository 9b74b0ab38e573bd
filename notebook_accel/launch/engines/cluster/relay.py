"""One group of ranks, as the bridge holds it: between the kernel's sockets and the machines."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from notebook_accel.errors import StreamError
from notebook_accel.events import Hello
from notebook_accel.launch.engines import descriptors
from notebook_accel.launch.engines.base import Machines
from notebook_accel.launch.engines.cluster import folders
from notebook_accel.launch.engines.cluster.fleet import Fleet
from notebook_accel.launch.engines.cluster.frames import Frame, weight
from notebook_accel.launch.engines.cluster.link import Link
from notebook_accel.launch.engines.cluster.sending import Outlet
from notebook_accel.launch.engines.cluster.transport import ClusterError
from notebook_accel.launch.stream import Channel, Message

_TELL_READ = 2**16
"""Bytes that the kernel takes before the agent is told."""
DESCRIPTORS = 6
"""Of each rank: its channel, twice, two pipes, its stacks, and one on its way to the kernel."""


@dataclass
class _Rank:
    environment: dict[str, str]
    channel: Channel
    """What the kernel says to it."""
    outlet: Outlet
    link: Link | None = None
    read: int = 0
    """Bytes that the kernel has taken, and the agent does not know of."""
    stacks: int | None = None
    """A stand-in for its stacks file, which the kernel reads."""
    ended: bool = False


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
        self._share = share
        self._ranks: dict[int, _Rank] = {}
        self._order: dict[str, Any] = {}
        """What the kernel has said of the whole group."""
        self._links: list[Link] = []
        self._members: dict[Link, list[int]] = {}
        """The numbers of the ranks on each."""
        self._asked: dict[str, str] = {}
        """Folders of which it is asked whether machines share them, each with the name of a file in it."""
        self._unheard: set[Link] = set()
        """Machines that have not told yet which of these they share."""
        self._started = False
        self._failed = False
        self._waiting: list[tuple[int | None, Frame]] = []
        """What is to be said once they have started, and to which rank; `None` for all."""
        self._payload: tuple[int, int] | None = None
        self._held: int | None = None
        """The latest payload's memory file, so that no other gets its number."""
        self._markers = contextlib.ExitStack()

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
            descriptors.allow(DESCRIPTORS * header["size"])
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
        channel, out, err = message.fds
        outlet = Outlet(self._selector, (channel, out, err))
        rank = _Rank(message.header["env"], Channel(socket.socket(fileno=channel)), outlet)
        self._order |= {name: message.header[name] for name in ("heartbeat", "pace")}
        self._ranks[number] = rank
        self._selector.register(rank.channel, selectors.EVENT_READ, partial(self._on_channel, number))

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
            self._selector.unregister(rank.channel)
            self._tell(number, self._frame("finish", rank=number))

    def _bring(self, fd: int) -> None:
        """Brings a call's memory file to every machine, once."""
        stat = os.fstat(fd)
        if (stat.st_dev, stat.st_ino) == self._payload:
            os.close(fd)
            return
        if self._held is not None:
            os.close(self._held)
        self._held, self._payload = fd, (stat.st_dev, stat.st_ino)
        blob = self._share(os.pread(fd, stat.st_size, 0) if stat.st_size < 2**30 else _read(fd, stat.st_size))
        self._tell(None, self._frame("payload", [blob]))

    def _tell(self, number: int | None, frame: Frame) -> None:
        """Tells the machine of a rank, or all of them, once they have started."""
        if not self._started:
            self._waiting.append((number, frame))
            return
        link = None if number is None else self._ranks[number].link
        for each in self._links if link is None else [link]:
            each.tell(frame)

    def _frame(self, operation: str, blobs: Sequence[Any] = (), **more: Any) -> Frame:
        return {"op": operation, "group": self.number, **more}, blobs

    # The start

    def begin(self, fleet: Fleet) -> None:
        """Has the machines get ready."""
        self.fleet = fleet
        if all(rank.ended for rank in self._ranks.values()):
            return
        each = -(-len(self._ranks) // len(fleet.links))
        members = [list(self._ranks)[at : at + each] for at in range(0, len(self._ranks), each)]
        self._links = fleet.links[: len(members)]
        lost = next((link for link in self._links if link.lost), None)
        if lost is not None:
            self.fail(f"{lost.label} is lost: {lost.lost}")
            return
        self._members = dict(zip(self._links, members, strict=True))
        for link, numbers in self._members.items():
            for number in numbers:
                self._ranks[number].link = link
        self._compare()
        self._proceed()

    def _compare(self) -> None:
        """Asks machines, as far as that is not known, which of the notebook's folders they share."""
        unknown = {link: link.shipping.unknown(self._order["folders"]) for link in self._links}
        self._asked = self._markers.enter_context(folders.marked(sorted({*chain(*unknown.values())})))
        self._unheard = {link for link, names in unknown.items() if names}
        for link in self._unheard:
            link.tell(self._frame("compare", folders={name: self._asked[name] for name in unknown[link]}))

    def _on_compared(self, link: Link, lacking: Sequence[str]) -> None:
        link.shipping.learn(link.shipping.unknown(list(self._asked)), lacking)
        self._unheard.discard(link)
        self._proceed()

    def on_place(self) -> None:
        """The first machine has opened a place to meet."""
        self._proceed()

    def _proceed(self) -> None:
        """Starts once all is there that it takes."""
        if self._started or self._failed or self._unheard or self.fleet is None or not self._links:
            return
        self._markers.close()
        try:
            self._start()
        except ClusterError as error:
            self.fail(str(error))

    def _start(self) -> None:
        assert self.fleet is not None
        own = self._order["folders"]
        lacking = {name for link in self._links for name in link.shipping.lacking(own)}
        scans = {name: folders.scan(name) for name in sorted(lacking)}
        place = self.fleet.take_place()
        if place is None:
            return
        for link, numbers in self._members.items():
            for frame in link.shipping.news(own, scans):
                link.tell(frame)
            link.tell(
                self._frame(
                    "start",
                    members=numbers,
                    environments=[self._ranks[number].environment for number in numbers],
                    first=link is self._links[0],
                    **vars(place),
                    **{name: self._order[name] for name in ("heartbeat", "pace")},
                )
            )
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
        if operation == "compared":
            self._on_compared(link, header["lacking"])
        elif operation == "failed":
            self.fail(f"{link.label}: {header['error']}")
        elif operation == "said":
            rank = self._ranks[header["rank"]]
            self._on_said(link, rank, header, blobs)
            rank.outlet.then(lambda: self._on_taken(header["rank"], weight(frame)))
        elif operation == "wrote":
            outlet = self._ranks[header["rank"]].outlet
            outlet.write(header["stream"], blobs[0])
            outlet.then(lambda: self._on_taken(header["rank"], weight(frame)))
        elif operation == "stacks":
            self._on_stacks(self._ranks[header["rank"]], blobs[0])
        elif operation == "silent":
            self._ranks[header["rank"]].outlet.finish()
        elif operation == "ended":
            ended = {name: header[name] for name in ("status", "at", "peak")}
            self._end(header["rank"], {**ended, "at": ended["at"] - link.offset})

    def on_loss(self, link: Link, why: str) -> None:
        """A machine is gone, and its ranks with it."""
        if link in self._links and not self._started:
            self.fail(f"{link.label} is lost: {why}")
        for number, rank in self._ranks.items():
            if rank.link is link:
                self._end(number, {"status": None, "at": time.time(), "peak": None, "lost": f"{link.label}: {why}"})

    def _on_said(self, link: Link, rank: _Rank, header: dict[str, Any], blobs: Sequence[Any]) -> None:
        said = header["header"]
        fds: list[int] = []
        if isinstance(said.get("at"), (int, float)):
            said = {**said, "at": said["at"] - link.offset}
        if said.get("kind") == Hello.kind:
            said = {**said, "host": link.label}
        if header["stacks"]:
            rank.stacks = os.memfd_create("notebook-accel-stacks", os.MFD_CLOEXEC)
            fds = [os.dup(rank.stacks)]
        rank.outlet.say(said, blobs, fds)

    def _on_stacks(self, rank: _Rank, content: bytes) -> None:
        if rank.stacks is not None:
            os.ftruncate(rank.stacks, 0)
            os.pwrite(rank.stacks, content, 0)

    def _on_taken(self, number: int, count: int) -> None:
        rank = self._ranks[number]
        rank.read += count
        if rank.read >= _TELL_READ:
            self._tell(number, self._frame("read", rank=number, bytes=rank.read))
            rank.read = 0

    def _end(self, number: int, how: dict[str, Any]) -> None:
        rank = self._ranks[number]
        if not rank.ended:
            rank.ended = True
            rank.outlet.then(lambda: self._say_kernel({"rank": number, **how}))
            rank.outlet.finish()

    def _say_kernel(self, header: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has just closed the group
            self._kernel.send(header)

    # The end

    def close(self) -> None:
        """The kernel has closed the group."""
        self._markers.close()
        for link in self._links:
            link.tell(self._frame("close"))
        for rank in self._ranks.values():
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(rank.channel)
            rank.channel.close()
            rank.outlet.close()
            if rank.stacks is not None:
                os.close(rank.stacks)
        if self._held is not None:
            os.close(self._held)
        self._kernel.close()
        self._links = []


def _read(fd: int, size: int) -> bytes:
    """A large file; one call reads 2 GB at most."""
    parts = []
    at = 0
    while at < size:
        parts.append(os.pread(fd, 2**30, at))
        at += len(parts[-1])
    return b"".join(parts)
