"""The ranks of an agent, real ones, and the frames that it sends of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import LaunchError
from notebook_accel.events import (
    Event,
    Exited,
    Failed,
    Hello,
    MemoryPeaks,
    Phase,
    Returned,
    StacksRequested,
    Written,
    from_wire,
    to_wire,
)
from notebook_accel.launch import engines
from notebook_accel.launch.cluster import event_frames
from notebook_accel.launch.cluster.agent.node_ranks import NodeRanks
from notebook_accel.launch.cluster.agent.partial_lines import WINDOW
from notebook_accel.launch.cluster.protocol import UNREAD, Frame
from notebook_accel.launch.plan.rendezvous import open_rendezvous
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.stream import Decoder
from tests.launch.engines import calls
from tests.launch.engines.driver import PATIENCE, environments

RANK = 4
"""The number in the group of the only rank on this machine."""


class Agent:
    """The part of an agent that holds a group of one rank; the test is the bridge."""

    def __init__(self, **environment: str) -> None:
        self.frames: list[Frame] = []
        self.loop = EventLoop()
        rendezvous = open_rendezvous(LaunchConfig(), 0)
        header = {"group": 7, "members": [RANK], "label": "node-b", "clock": [0.0, 0.0], "heartbeat": 60.0, "pace": 1.0}
        header["environment"] = environment
        self.group = NodeRanks(header, engines.get("forkserver"), self.loop, self.frames.append)
        own = environments(1, rendezvous, {})
        self.group.start({**header, "environments": own}, rendezvous, {}, {})

    def request(self, operation: str, blobs: Sequence[Any] = (), **more: Any) -> None:
        self.group.on_frame({"op": operation, "ranks": [RANK], **more}, blobs)

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        with payload.pack(function, args, {}) as packed:
            assert not packed.fds
            self.request("call", packed.parts, layout=packed.layout)

    def events(self) -> list[Event]:
        """What the frames tell the kernel."""
        frames = [frame for frame in self.frames if frame[0]["op"] == "events"]
        return [from_wire(*said) for _, blobs in event_frames.coalesce(frames) for said in decoded(blobs)]

    def output(self, stream: str = "stdout") -> bytes:
        written = [event for event in self.events() if isinstance(event, Written) and event.stream == stream]
        return b"".join(map(bytes, (part for event in written for part in event.data)))

    def weight(self) -> int:
        return sum(header["weight"] for header, _ in self.frames if header["op"] == "events")

    def has(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events())

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.events()
            self.loop.run_once(0.1)

    def settle(self) -> None:
        """Lets the agent take all that the rank can still write."""
        while self.loop.run_once(0.5):
            pass


def decoded(blobs: Sequence[Any]) -> Iterator[Any]:
    decoder = Decoder()
    for blob in blobs:
        yield from decoder.feed(blob)


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent()
    yield made
    made.group.close()


def test_the_end_of_a_rank_is_told_after_all_that_it_said_and_wrote(agent: Agent) -> None:
    agent.call(calls.speak)
    agent.request("finish")
    agent.wait_for(lambda: agent.has(Exited))
    assert agent.output().endswith(b"no end")
    assert agent.output("stderr") == b"complained\nwritten too\n"
    *before, returned, _ = [event for event in agent.events() if not isinstance(event, (Written, MemoryPeaks))]
    assert isinstance(returned, Returned)
    assert isinstance(before[0], Hello)
    assert before[0].host == "node-b"
    assert isinstance(agent.events()[-1], Exited)
    ended = [(header["rank"], header["ended"]) for header, _ in agent.frames]
    assert ended == [(RANK, False)] * (len(ended) - 1) + [(RANK, True)]


def test_a_rank_of_whose_output_nothing_is_read_has_to_wait(agent: Agent) -> None:
    agent.call(calls.flood, 4 * UNREAD)
    agent.wait_for(lambda: agent.weight() > UNREAD)
    agent.settle()
    assert agent.weight() < 2 * UNREAD
    assert not agent.has(Returned)
    read = 0
    while not agent.has(Returned):
        agent.request("read", bytes=agent.weight() - read)
        read = agent.weight()
        agent.wait_for(lambda before=read: agent.weight() > before)
    assert len(agent.output()) == 4 * UNREAD + 1


def test_what_a_line_begins_with_is_sent_though_its_end_does_not_come(agent: Agent) -> None:
    agent.call(calls.wait_deaf)  # which writes, without a line end
    agent.wait_for(lambda: b"deaf" in agent.output())
    agent.request("signal", signum=9)
    agent.wait_for(lambda: agent.has(Exited))


def test_a_line_is_sent_whole_if_its_end_came_while_the_agent_was_busy(agent: Agent) -> None:
    (is_busy, make_busy), (has_end, write_end) = os.pipe(), os.pipe()

    def be_busy() -> None:
        os.read(is_busy, 1)
        time.sleep(2 * WINDOW)
        os.write(write_end, b" end\n")

    agent.wait_for(lambda: agent.has(Hello))
    agent.settle()  # whatever else the rank says would be sent after the beginning of the line
    agent.loop.register(is_busy, be_busy)
    agent.loop.register(has_end, lambda: agent.group.on_event(0, Written("stdout", [os.read(has_end, 9)])))
    agent.group.on_event(0, Written("stdout", [b"begin"]))
    os.write(make_busy, b"+")
    agent.wait_for(lambda: b"end" in agent.output())
    sent = [b"".join(map(bytes, blobs)) for _, blobs in agent.frames]
    assert sum(b"begin" in each for each in sent) == sum(b"begin end" in each for each in sent) == 1
    for descriptor in (is_busy, has_end):
        agent.loop.unregister(descriptor)
    for descriptor in (is_busy, make_busy, has_end, write_end):
        os.close(descriptor)


def test_a_rank_is_asked_for_its_stacks_over_its_agent(agent: Agent) -> None:
    agent.call(calls.wait)
    agent.wait_for(lambda: any(event.kind == "phase" for event in agent.events()))
    agent.request("send", event=to_wire(StacksRequested(3))[0])
    agent.wait_for(lambda: any(event.kind == "stacks" for event in agent.events()))


def test_a_group_that_cannot_be_started_is_told_of(agent: Agent) -> None:
    agent.group.on_failure(LaunchError("no more processes"))
    assert agent.frames[-1] == ({"op": "failed", "group": 7, "error": "no more processes"}, ())


def test_a_large_call_comes_in_a_memory_file(agent: Agent) -> None:
    with payload.pack(len, (bytes(100_000),), {}) as packed:
        (fd,) = packed.fds
        agent.request("payload", [os.pread(fd, 2**20, 0)])
        agent.request("call", layout=packed.layout)
    agent.wait_for(lambda: agent.has(Returned))
    [returned] = [event for event in agent.events() if isinstance(event, Returned)]
    assert payload.unpack_value(returned.value) == 100_000


def test_only_a_training_that_saves_checkpoints_is_waited_for_when_the_node_shuts_down(agent: Agent) -> None:
    agent.group.preempt()
    assert not agent.group.is_saving
    saving = Agent(NOTEBOOK_ACCEL_CHECKPOINT_DIR="folder")
    try:
        saving.call(calls.wait)  # no loop over epochs, so it is interrupted
        saving.wait_for(lambda: any(getattr(event, "phase", None) == Phase.RUNNING for event in saving.events()))
        saving.group.preempt()
        assert saving.group.is_saving
        saving.wait_for(lambda: saving.has(Failed))
        saving.request("finish")
        saving.wait_for(lambda: saving.has(Exited))
        assert not saving.group.is_saving
    finally:
        saving.group.close()
