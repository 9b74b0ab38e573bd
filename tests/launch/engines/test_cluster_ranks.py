"""What the driver makes of the messages of a bridge, and what it asks of it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.events import Bar, Event, Exited, Written
from notebook_accel.launch.cluster.clock_offset import SAME_CLOCK
from notebook_accel.launch.cluster.event_frames import EventFrames, coalesce
from notebook_accel.launch.engines.cluster_ranks import ClusterRanks
from notebook_accel.launch.engines.contract import NodeRequest, RanksSpec, Rendezvous
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Channel


class Bridge:
    """The other end of a group: records requests, and sends events as nodes do."""

    def __init__(self) -> None:
        own_end, bridge_end = socket.socketpair()
        self._channel = Channel(bridge_end)
        self.heard: list[tuple[int, Event]] = []
        self.loop = EventLoop()
        spec = RanksSpec(
            environments=[{"SEED": "1", "RANK": str(rank)} for rank in range(2)],
            rendezvous=Rendezvous(host="", port=0, listener=None, opened_by_engine=True),
            heartbeat=1.0,
            node_request=NodeRequest(1, cpus=2),
        )
        self.ranks = ClusterRanks(self.why_it_ended, Channel(own_end), spec, ["/project"], self.loop)
        self.ranks.listener = lambda rank, event: self.heard.append((rank, event))

    def requests(self) -> list[dict[str, Any]]:
        if not self._channel.has_data():
            return []
        found = self._channel.receive(wait=True) or []
        for message in found:
            for fd in message.fds:
                os.close(fd)
        return [message.header for message in found]

    def say(self, rank: int, *events: Event) -> None:
        for header, blobs in coalesce([EventFrames(1, "node-b", SAME_CLOCK).of(rank, event) for event in events]):
            self._channel.send(header, blobs)
        self.loop.run_once(0)

    def fail(self, error: str) -> None:
        self._channel.send({"op": "failed", "error": error})

    def close(self) -> None:
        self._channel.close()

    def why_it_ended(self) -> str:
        return "it was killed"


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    made = Bridge()
    yield made
    made.ranks.close()
    made.close()


def test_what_all_ranks_share_is_sent_once(bridge: Bridge) -> None:
    [start] = bridge.requests()
    assert start["environment"] == {"SEED": "1"}
    assert start["environments"] == [{"RANK": "0"}, {"RANK": "1"}]
    assert start["folders"] == ["/project"]


def test_a_large_call_is_sent_once_for_all_its_ranks(bridge: Bridge) -> None:
    bridge.requests()
    with payload.pack(len, (bytes(100_000),), {}) as packed:
        bridge.ranks.call([0], packed)
        bridge.ranks.call([1], packed)
    found = bridge.requests() + bridge.requests()
    assert [(request["op"], request.get("ranks")) for request in found] == [
        ("payload", None),
        ("call", [0]),
        ("call", [1]),
    ]


def test_events_keep_their_order_and_their_parts(bridge: Bridge) -> None:
    told = [Bar(1, n=1.0), Bar(1, n=2.0), Written("stdout", [b"one\n"]), Bar(1, n=3.0)]
    bridge.say(1, *told)
    while bridge.loop.run_once(0):
        pass
    assert bridge.heard == [(1, event) for event in told]


def test_what_is_read_is_reported_so_that_more_may_come(bridge: Bridge) -> None:
    bridge.requests()
    bridge.say(0, Written("stdout", [bytes(1000)]))
    assert bridge.requests() == []
    bridge.say(0, Written("stdout", [bytes(100_000)]))
    [read] = bridge.requests()
    assert (read["op"], read["ranks"]) == ("read", [0])
    assert read["bytes"] > 101_000


def test_a_paused_rank_is_neither_heard_nor_reported_as_read(bridge: Bridge) -> None:
    bridge.requests()
    bridge.ranks.pause(0)
    bridge.say(0, Written("stdout", [bytes(100_000)]))
    bridge.say(1, Written("stdout", [b"other"]))
    assert (bridge.heard, bridge.requests()) == ([(1, Written("stdout", [b"other"]))], [])
    bridge.ranks.resume(0)
    assert bridge.heard[1:] == [(0, Written("stdout", [bytes(100_000)]))]
    assert [request["op"] for request in bridge.requests()] == ["read"]


def test_the_end_of_a_paused_rank_is_heard_after_all_before(bridge: Bridge) -> None:
    bridge.ranks.pause(0)
    bridge.say(0, Written("stdout", [b"last words"]))
    assert not bridge.heard
    bridge.say(0, Exited(0, at=time.time()))
    assert [event.kind for _, event in bridge.heard] == ["written", "exited"]


def test_a_clock_that_is_ahead_does_not_put_an_end_into_the_future(bridge: Bridge) -> None:
    bridge.say(0, Exited(0, at=time.time() + 100))
    [(_, exited)] = bridge.heard
    assert isinstance(exited, Exited)
    assert exited.at <= time.time()


def test_what_the_bridge_cannot_start_is_raised(bridge: Bridge) -> None:
    bridge.fail("no machine is free")
    with pytest.raises(LaunchError, match="no machine is free"):
        bridge.loop.run_once(0)
    assert not bridge.loop.run_once(0)


def test_a_bridge_that_ends_takes_the_ranks_along(bridge: Bridge) -> None:
    bridge.say(0, Exited(0, at=1.0))
    bridge.close()
    with pytest.raises(LaunchError, match="it was killed") as caught:
        bridge.loop.run_once(0)
    assert caught.value.engine_lost


def test_a_bridge_may_end_once_all_ranks_have(bridge: Bridge) -> None:
    for rank in range(2):
        bridge.say(rank, Exited(0, at=1.0))
    bridge.close()
    bridge.loop.run_once(0)
    assert not bridge.loop.run_once(0)
