"""The end of a rank on a cluster's machine comes after all that it has said and written."""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from notebook_accel.launch.cluster.bridge.relayed_rank import RelayedRank
from notebook_accel.launch.cluster.select_once import select_once

from notebook_accel.events import Exited, Line, from_wire, to_wire
from notebook_accel.launch.cluster.agent import rank_messages
from notebook_accel.launch.cluster.agent.local_group import LocalGroup
from notebook_accel.launch.cluster.protocol import Frame
from notebook_accel.launch.engines.contract import Rendezvous
from notebook_accel.launch.wire.stream import Channel, Decoder, Message

HEADER = {"group": 7, "members": [4], "label": "node-b", "ahead": 0.0, "heartbeat": 1.0, "pace": 1.0}


@dataclass
class OneRank:
    """Both ends of a rank and of what tells of its exit, as an engine would hand them to an agent."""

    channels: list[Channel]
    outputs: list[tuple[int, int]]
    exits: Channel
    channel: Channel
    out: int
    err: int
    told: Channel
    closed: bool = False
    ended: list[tuple[int, Exited]] = field(default_factory=list)

    @classmethod
    def make(cls) -> OneRank:
        (agent, rank), (exits, told) = socket.socketpair(), socket.socketpair()
        (out_read, out), (err_read, err) = os.pipe(), os.pipe()
        for fd in (out_read, err_read):
            os.set_blocking(fd, False)
        return cls([Channel(agent)], [(out_read, err_read)], Channel(exits), Channel(rank), out, err, Channel(told))

    def start(self, spec: object) -> OneRank:
        return self

    def fileno(self) -> int:
        return self.exits.fileno()

    def new_exits(self) -> list[tuple[int, Exited]]:
        self.exits.receive(wait=False)
        return self.ended

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for channel in (*self.channels, self.exits, self.channel, self.told):
                channel.close()
            for fd in (*self.outputs[0], self.out, self.err):
                os.close(fd)

    def exit(self) -> None:
        """Ends it."""
        self.ended = [(0, Exited(0))]
        self.told.send({})


@pytest.fixture
def rank() -> Iterator[OneRank]:
    made = OneRank.make()
    yield made
    made.close()


def told_of(rank: OneRank, act: Callable[[], object]) -> list[Frame]:
    """What an agent tells of a rank that does this and ends, before the agent has heard anything of it."""
    told: list[Frame] = []
    engine: Any = rank
    with selectors.DefaultSelector() as selector:
        group = LocalGroup(HEADER, engine, selector, told.append)
        group.start({**HEADER, "environments": [{}]}, Rendezvous(host="127.0.0.1", port=1, listener=None), {}, {})
        act()
        rank.exit()
        selector.get_key(engine).data()  # it learns of the exit first
        group.close()
    assert told[-1][0]["op"] == "ended"
    return told


def test_an_agent_tells_what_a_rank_wrote_last_before_its_end(rank: OneRank) -> None:
    def write() -> None:
        os.write(rank.out, b"last words")
        os.write(rank.err, b"no line end")

    wrote = [(header["stream"], blobs[0]) for header, blobs in told_of(rank, write) if header["op"] == "wrote"]
    assert wrote == [("stdout", b"last words"), ("stderr", b"no line end")]


def test_an_agent_tells_what_a_rank_said_last_before_its_end(rank: OneRank) -> None:
    def say() -> None:
        os.write(rank.out, b"before that")
        rank.channel.send(*to_wire(Line("stdout", "said")))

    told = told_of(rank, say)
    assert [header["op"] for header, _ in told] == ["wrote", "said", "ended"]
    [(_, parts)] = rank_messages.coalesce(told[1:2])
    assert [from_wire(*heard) for heard in Decoder().feed(b"".join(parts))] == [Line("stdout", "said")]


def test_the_kernel_hears_of_the_end_once_it_has_taken_all_that_was_written() -> None:
    kernel, bridge = socket.socketpair()
    out, err = os.pipe(), os.pipe()
    message = Message({"env": {}}, [], [os.dup(bridge.fileno()), os.dup(out[1]), os.dup(err[1])])
    much = bytes(300_000)  # more than a pipe holds
    ended: list[str] = []
    got = b""
    with selectors.DefaultSelector() as selector:
        relayed = RelayedRank(message, selector, lambda: None, lambda count: None)
        relayed.write("stdout", much, len(much))
        relayed.end(lambda: ended.append("end"))
        relayed.end(lambda: ended.append("again"))
        assert not ended
        while len(got) < len(much):
            got += os.read(out[0], 2**20)
            select_once(selector, 0.0)
        relayed.close()
    assert (len(got), ended) == (len(much), ["end"])
    for fd in (*out, *err):
        os.close(fd)
    kernel.close()
    bridge.close()
