"""The driver's side of ranks on the nodes of a cluster, which the bridge reaches."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.events import Bar, Event, Exited, Reports, from_wire, to_wire
from notebook_accel.launch.engines.contract import RanksSpec
from notebook_accel.launch.engines.ranks import RankProcess, Ranks
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload
from notebook_accel.launch.wire.stream import Channel, Decoder, Message

_REPORT_READ = 2**16
"""How many bytes of a rank's events are read before this is reported to the rank's node."""


class ClusterRank(RankProcess):
    """A rank on a node of a cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Message] | None = None
        """The messages that have come since it was paused; `None` while it is not."""
        self.read = 0
        """Bytes of its events that were read since the last report to its node."""


class ClusterRanks(Ranks):
    """The ranks of one start. The requests and events on the channel are those of `launch/cluster/protocol.py`.

    Args:
        why_it_ended: Says why the bridge has ended, once it has.
        channel: The socket of these ranks, whose other end the bridge has.
        spec: The ranks.
        folders: The folders with the user's code, which the nodes need.
        loop: Reads what the ranks send.
    """

    processes: list[ClusterRank]

    def __init__(
        self,
        why_it_ended: Callable[[], str],
        channel: Channel,
        spec: RanksSpec,
        folders: Sequence[str],
        loop: EventLoop,
    ) -> None:
        super().__init__(spec.size, spec.rendezvous.ports, loop)
        assert spec.node_request is not None
        self._why_it_ended = why_it_ended
        self._channel = channel
        self.processes = [ClusterRank() for _ in range(spec.size)]
        self._payload: Payload | None = None
        """The latest call whose memory files were sent; each node gets it once."""
        shared = dict(set.intersection(*(set(environment.items()) for environment in spec.environments)))
        loop.register_throttled(channel, self._receive, ranks=spec.size)
        self._request(
            "start",
            size=spec.size,
            node_request=vars(spec.node_request),
            folders=folders,
            heartbeat=spec.heartbeat,
            pace=spec.report_interval,
            environment=shared,
            environments=[dict(each.items() - shared.items()) for each in spec.environments],
        )

    def _call(self, ranks: Collection[int], payload: Payload) -> None:
        if payload.fds and payload is not self._payload:
            self._payload = payload
            self._request("payload", fds=payload.fds)
        self._request("call", payload.parts, ranks=list(ranks), layout=payload.layout)

    def send(self, ranks: Collection[int], event: Event) -> None:
        self._request("send", ranks=list(ranks), event=to_wire(event)[0])

    def _finish(self, ranks: Collection[int]) -> None:
        self._request("finish", ranks=list(ranks))

    def signal(self, rank: int, signum: int) -> None:
        self._request("signal", ranks=[rank], signum=int(signum))

    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        self._request("dump_stacks", ranks=list(ranks), number=number)

    def pause(self, rank: int) -> None:
        """As in the contract: what is not read is not reported as read, so that the rank's node stops sending."""
        if self.processes[rank].held is None:
            self.processes[rank].held = []

    def resume(self, rank: int) -> None:
        held, self.processes[rank].held = self.processes[rank].held, None
        for message in held or ():
            self._deliver(message)

    def close_store(self) -> None:
        self._request("close_store")

    def expect_ends(self) -> None:
        self._request("expect_ends")

    def close(self) -> None:
        self.loop.unregister(self._channel)
        self._channel.close()
        super().close()

    def _request(self, operation: str, blobs: Sequence[Any] = (), fds: Sequence[int] = (), **more: Any) -> None:
        with contextlib.suppress(OSError):  # the bridge has ended, which `_receive` reports
            self._channel.send({"op": operation, **more}, blobs, fds)

    def _receive(self) -> bool:
        """Handles what has arrived; returns whether that was only progress, so that the next read may be throttled."""
        messages = self._channel.receive(wait=False)
        if messages is None:
            self.loop.unregister(self._channel)
            if len(self.exited) < self.size:
                self.on_failure(LaunchError(self._why_it_ended(), engine_lost=True))
            return False
        is_progress = True
        for message in messages:
            is_progress &= self._on_message(message)
        return is_progress and bool(messages) and not self._channel.is_torn

    def _on_message(self, message: Message) -> bool:
        if message.header["op"] == "failed":
            self.loop.unregister(self._channel)
            self.on_failure(LaunchError(message.header["error"]))
            return False
        rank = message.header["rank"]
        if message.header["ended"]:
            self.resume(rank)
        if (held := self.processes[rank].held) is not None:
            held.append(message)
            return True
        return self._deliver(message)

    def _deliver(self, message: Message) -> bool:
        """Passes on the events of a rank; returns whether they are only progress."""
        rank = message.header["rank"]
        decoder = Decoder()
        is_progress = True
        for blob in message.blobs:
            for header, blobs in decoder.feed(blob):
                event = from_wire(header, blobs)
                is_progress &= isinstance(event, (Bar, Reports))
                if isinstance(event, Exited):
                    # The clock of another node is known to a tenth of a second.
                    event = replace(event, at=min(event.at, time.time()))
                self._report(rank, event)
        process = self.processes[rank]
        process.read += message.header["weight"]
        if process.read >= _REPORT_READ:
            self._request("read", ranks=[rank], bytes=process.read)
            process.read = 0
        return is_progress
