"""Persistent ranks between their calls, with real ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.events import Event, Hello, Returned, Written
from notebook_accel.launch import engines
from notebook_accel.launch.engines.contract import RanksSpec
from notebook_accel.launch.plan.rendezvous import open_rendezvous
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.event_loop import EventLoop
from tests.launch.engines import calls
from tests.launch.engines.driver import environments


class Calls:
    """Runs calls on ranks, and keeps the events of the last."""

    def __init__(self, size: int) -> None:
        rendezvous = open_rendezvous(LaunchConfig(), 0)
        spec = RanksSpec(environments=environments(size, rendezvous, {}), rendezvous=rendezvous, heartbeat=60.0)
        self.ranks = engines.get("forkserver").start(spec, EventLoop())
        self.events: list[tuple[int, Event]] = []

    def call(self, members: Sequence[int], function: Callable[..., Any], *args: Any) -> None:
        self.events = []
        with (
            payload.pack(function, args, {}) as packed,
            self.ranks.calling(members, packed, lambda rank, event: self.events.append((rank, event))),
        ):
            while not all(
                any(at == rank and event.kind == "returned" for at, event in self.events) for rank in members
            ):
                self.ranks.loop.run_once(1.0)

    def of(self, rank: int, kind: type[Event]) -> list[Any]:
        return [event for at, event in self.events if at == rank and isinstance(event, kind)]

    def output(self, rank: int) -> bytes:
        return b"".join(part for event in self.of(rank, Written) for part in event.data)


@pytest.fixture
def ranks() -> Iterator[Calls]:
    made = Calls(2)
    yield made
    made.ranks.close()


def test_what_is_written_between_two_calls_is_shown_with_the_next(ranks: Calls) -> None:
    ranks.call([0], calls.flood_later, 300_000)
    before = len(ranks.output(0))
    while ranks.ranks.loop.run_once(0.5):
        pass
    ranks.call([0], calls.add, 1, 1)
    assert before + len(ranks.output(0)) == 300_001
    assert ranks.of(0, Hello), "each call's job begins with where the rank is"


def test_a_rank_that_writes_for_ever_does_not_keep_the_next_call_from_its_start(ranks: Calls) -> None:
    ranks.call([0], calls.flood_for_ever)
    ranks.ranks.catch_up()
    ranks.call([0], calls.add, 1, 1)
    assert ranks.of(0, Returned)


def test_a_call_hears_nothing_of_ranks_that_do_not_take_part(ranks: Calls) -> None:
    ranks.call([0, 1], calls.flood_later, 300_000)
    before = len(ranks.output(1))
    ranks.call([0], calls.add, 1, 1)
    assert {rank for rank, _ in ranks.events} == {0}
    ranks.call([0, 1], calls.add, 1, 1)
    while before + len(ranks.output(1)) < 300_001:
        before += len(ranks.output(1))
        ranks.call([1], calls.add, 1, 1)
