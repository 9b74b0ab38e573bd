"""Messages between the notebook's debugger and those of the ranks."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_accel.events import DebugRequested
from notebook_accel.launch.driver import debug_relay
from notebook_accel.launch.driver.debug_relay import DISCONNECT, DebugRelay
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.wire.event_loop import Calls, EventLoop


class Client:
    """A debugger that sets nothing up."""

    def setup(self) -> Sequence[Mapping[str, Any]]:
        return []

    def begin(self, relay: DebugRelay) -> None: ...

    def on_message(self, relay: DebugRelay, member: int, message: Mapping[str, Any]) -> None: ...

    def end(self, relay: DebugRelay) -> None: ...


@pytest.fixture
def sent() -> list[Mapping[str, Any]]:
    return []


@pytest.fixture
def relay(sent: list[Mapping[str, Any]]) -> Iterator[DebugRelay]:
    def send(members: Collection[int], event: DebugRequested) -> None:
        sent.extend(map(json.loads, event.messages))

    group: Any = SimpleNamespace(loop=EventLoop(), send=send, is_debugged=False)
    debug_relay.set_client(Client())
    calls = Calls(group.loop)
    opened = DebugRelay(group, calls, Job("train", 0, 2), [0, 1])
    opened.open()
    yield opened
    opened.close()
    calls.close()
    debug_relay.set_client(None)


def test_ranks_are_released_once(relay: DebugRelay, sent: list[Mapping[str, Any]]) -> None:
    relay.release()
    relay.release()
    assert sent == [DISCONNECT]


def test_a_release_that_comes_after_the_call_does_not_reach_the_next_one(
    relay: DebugRelay, sent: list[Mapping[str, Any]]
) -> None:
    relay.close()
    relay.release()  # by the timer that an interrupt has started
    assert sent == []
