"""The ranks of one launch on an agent's node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.events import Bar, Event, Heartbeat, Preempt, Reports, StepTimes, Written, from_wire
from notebook_accel.launch.cluster.agent.partial_lines import WINDOW, PartialLines
from notebook_accel.launch.cluster.clock_offset import ClockOffset
from notebook_accel.launch.cluster.event_frames import EventFrames
from notebook_accel.launch.cluster.protocol import UNREAD, Frame
from notebook_accel.launch.engines.contract import Engine, RanksSpec, Rendezvous
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.system import memory, network
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload

_PROGRESS = (Bar, Reports, Heartbeat, StepTimes)


class NodeRanks:
    """Carries out the bridge's requests on the ranks of this node, and sends it their events.

    Args:
        header: The header of the frame that starts them.
        engine: Starts the ranks.
        loop: The event loop of the agent's thread.
        add: Takes a frame for the bridge.
    """

    def __init__(
        self, header: Mapping[str, Any], engine: Engine, loop: EventLoop, add: Callable[[Frame], object]
    ) -> None:
        self._members: list[int] = header["members"]
        self._saves_checkpoints = bool(header["environment"].get("NOTEBOOK_ACCEL_CHECKPOINT_DIR"))
        self._preempted = False
        self._frames = EventFrames(header["group"], header["label"], ClockOffset(*header["clock"]))
        self._engine = engine
        self._loop = loop
        self._add = add
        self._ranks: Ranks | None = None
        self._payload: list[int] = []
        """The memory files of the latest large call."""
        self._unread = [0] * len(self._members)
        """The weight of each rank's events that the kernel has not read."""
        self._partial_lines = PartialLines()
        self._is_checking = False
        """A timer will send the partial lines that are due."""

    def start(
        self, header: Mapping[str, Any], rendezvous: Rendezvous, environ: Mapping[str, str], arranged: Mapping[str, str]
    ) -> None:
        """Starts the ranks.

        Args:
            header: The header of the frame that starts them.
            rendezvous: The rendezvous that the ranks join: its address, and the listener if this is the first node.
            environ: This machine's environment.
            arranged: Variables that only this node knows; they override all others.
        """
        interface = network.interface_of(rendezvous.host)
        names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if interface else ()
        shared = {**dict.fromkeys(names, str(interface)), **environ, **header["environment"]}
        spec = RanksSpec(
            environments=[{**shared, **own, **arranged} for own in header["environments"]],
            rendezvous=rendezvous,
            heartbeat=header["heartbeat"],
            pace=header["pace"],
        )
        try:
            self._ranks = self._engine.start(spec, self._loop)
        except (LaunchError, OSError) as error:
            self.on_failure(error)
            return
        self._ranks.listener, self._ranks.on_failure = self.on_event, self.on_failure

    @property
    def is_saving(self) -> bool:
        """Whether it was preempted, and some of its ranks run until they have saved a checkpoint."""
        return self._preempted and self._ranks is not None and len(self._ranks.exited) < self._ranks.size

    def preempt(self) -> None:
        """Makes a training run end with a checkpoint, if it saves any."""
        if self._ranks is not None and self._saves_checkpoints:
            self._preempted = True
            self._ranks.send(range(len(self._members)), Preempt(f"the shutdown of {self._frames.label}"))

    def close(self) -> None:
        """Ends the remaining ranks."""
        if self._ranks is not None:
            self._ranks.close()
        self._close_payload()

    # From the bridge

    def on_frame(self, header: dict[str, Any], blobs: Sequence[Any]) -> None:
        """Carries out a request of the bridge."""
        operation, ranks = header["op"], self._ranks
        if operation == "payload":
            self._take_payload(blobs[0])
        if ranks is None:
            return  # it could not be started, which has been reported
        members = [self._members.index(rank) for rank in header.get("ranks", ())]
        if operation == "call":
            ranks.call(members, Payload(() if blobs else self._payload, tuple(header["layout"]), blobs))
        elif operation == "send":
            ranks.send(members, from_wire(header["event"]))
        elif operation == "finish":
            ranks.finish(members)
        elif operation == "dump_stacks":
            ranks.dump_stacks(members, header["number"])
        elif operation == "close_store":
            ranks.close_store()
        elif operation == "expect_ends":
            ranks.expect_ends()
        for local in members:
            if operation == "signal":
                ranks.signal(local, header["signum"])
            elif operation == "read":
                self._on_read(ranks, local, header["bytes"])

    def _take_payload(self, data: Any) -> None:
        self._close_payload()
        self._payload = memory.write([memoryview(data)])

    def _close_payload(self) -> None:
        memory.close(self._payload)
        self._payload = []

    def _on_read(self, ranks: Ranks, local: int, count: int) -> None:
        was_paused = self._unread[local] > UNREAD
        self._unread[local] -= count
        if was_paused and self._unread[local] <= UNREAD:
            ranks.resume(local)

    # From the ranks

    def on_event(self, rank: int, event: Event) -> None:
        """Sends an event of a rank of this node to the bridge."""
        if isinstance(event, Written):
            self._write(rank, event.stream, self._partial_lines.add((rank, event.stream), b"".join(event.data)))
            self._check_later()
            return
        if not isinstance(event, _PROGRESS):
            for stream in ("stdout", "stderr"):
                self._write(rank, stream, self._partial_lines.take((rank, stream)))
        self._send(rank, event)

    def on_failure(self, error: Exception) -> None:
        """Reports that the ranks could not be started, or that what starts them has ended."""
        self._preempted = False
        self._add(({"op": "failed", "group": self._frames.group, "error": str(error)}, ()))

    def _write(self, local: int, stream: str, data: bytes) -> None:
        if data:
            self._send(local, Written(stream, [data]))

    def _send(self, local: int, event: Event) -> None:
        """Sends an event. While too much of a rank's is unread, nothing more is read from it, so that it waits."""
        frame = self._frames.of(self._members[local], event)
        self._unread[local] += frame[0]["weight"]
        self._add(frame)
        if self._unread[local] > UNREAD and self._ranks is not None:
            self._ranks.pause(local)

    def _check_later(self) -> None:
        if self._partial_lines.any and not self._is_checking:
            self._is_checking = True
            # Once more around the loop, which reads what has come while it was busy: perhaps the rest of the line.
            self._loop.call_later(WINDOW, lambda: self._loop.call_later(0, self._check))

    def _check(self) -> None:
        """Sends the partial lines that are due."""
        self._is_checking = False
        for local, stream in self._partial_lines.due():
            if self._unread[local] <= UNREAD // 2:  # otherwise the rest of the line might have to wait
                self._write(local, stream, self._partial_lines.take((local, stream)))
        self._check_later()
