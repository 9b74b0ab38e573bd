"""Drives groups of ranks through an engine's contract, and keeps what they say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from notebook_accel.config import LaunchConfig
from notebook_accel.events import (
    Event,
    Exited,
    Failed,
    Heartbeat,
    Hello,
    MemoryPeaks,
    Phase,
    PhaseChanged,
    Returned,
    Written,
)
from notebook_accel.launch.engines.contract import Engine, RanksSpec, Rendezvous
from notebook_accel.launch.plan.rendezvous import open_rendezvous
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.event_loop import EventLoop

PATIENCE = 100.0
"""Seconds, fewer than a test may take: what is waited for comes, however busy the machine is."""


def environments(size: int, rendezvous: Rendezvous, changes: Mapping[str, str | None]) -> list[dict[str, str]]:
    ranks = []
    for rank in range(size):
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": rendezvous.host,
            "MASTER_PORT": str(rendezvous.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "NOTEBOOK_ACCEL_DEVICE": "cpu",
            "NOTEBOOK_ACCEL_BACKEND": "gloo",
            "CPU_NUM_DEVICES": str(size),  # of torch_xla, which has its own ways to learn of its ranks
        }
        ranks.append({name: value for name, value in {**os.environ, **own, **changes}.items() if value is not None})
    return ranks


class Group:
    """A group of ranks, started."""

    def __init__(
        self, engine: Engine, size: int = 1, *, heartbeat: float = 0.05, environ: Mapping[str, str | None] | None = None
    ) -> None:
        self.engine = engine
        rendezvous = open_rendezvous(LaunchConfig(), 0)
        self.spec = RanksSpec(
            environments=environments(size, rendezvous, environ or {}), rendezvous=rendezvous, heartbeat=heartbeat
        )
        self.events: list[list[Event]] = [[] for _ in range(size)]
        self.exits: dict[int, Exited] = {}
        self.output: dict[tuple[int, str], bytes] = {
            (rank, name): b"" for rank in range(size) for name in ("out", "err")
        }
        self.order: list[list[str]] = [[] for _ in range(size)]
        """The kinds of each rank's events, with what it wrote among them."""
        self._payloads: list[payload.Payload] = []
        self._loop = EventLoop()
        try:
            self.ranks = engine.start(self.spec, self._loop)
        except BaseException:
            if rendezvous.listener is not None:
                rendezvous.listener.close()
            raise
        self.ranks.listener = self._on_event

    @property
    def size(self) -> int:
        return self.spec.size

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.ranks.close()
        for packed in self._payloads:
            packed.close()
        self._payloads.clear()

    # What it is told

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        make = payload.pack if self.engine.isolated else payload.wrap_in_process
        self._payloads.append(make(function, args, {}))
        self.ranks.call(range(self.size), self._payloads[-1])

    def finish(self) -> None:
        """No further call comes."""
        self.ranks.finish(range(self.size))

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Calls a function on all ranks, and waits until all have ended; returns what they returned."""
        self.call(function, *args)
        self.end()
        return [self.value(rank) for rank in range(self.size)]

    # What it says

    def wait_for(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"not within {seconds} s; so far {self.events}, {self.exits}, {self.output}"
            self._loop.run_once(left)

    def end(self) -> None:
        """Waits until all ranks have come to the end of their calls, lets them go, and waits until they have gone."""
        self.wait_for(lambda: all(rank in self.exits or self._is_idle(rank) for rank in range(self.size)))
        self.finish()
        self.wait_for_exits()

    def _is_idle(self, rank: int) -> bool:
        return len(self.of(rank, Returned)) + len(self.of(rank, Failed)) == len(self._payloads)

    def wait_for_exits(self) -> None:
        self.wait_for(lambda: len(self.exits) == self.size)

    def turn(self) -> bool:
        """Takes what there is, without waiting; returns whether there was anything."""
        return self._loop.run_once(0)

    def wait_for_hello(self) -> list[int]:
        """Waits until all ranks are there; returns their processes."""
        self.wait_for(lambda: all(self.of(rank, Hello) for rank in range(self.size)))
        return [self.of(rank, Hello)[0].pid for rank in range(self.size)]

    def wait_for_running(self) -> None:
        running = PhaseChanged(Phase.RUNNING)
        self.wait_for(lambda: all(running in events for events in self.events))

    def wait_for_answers(self) -> None:
        """Waits until each rank has come to the end of its calls."""
        self.wait_for(lambda: all(map(self._is_idle, range(self.size))))

    def wait_for_output(self, text: bytes, name: str = "out") -> None:
        self.wait_for(lambda: all(text in self.output[rank, name] for rank in range(self.size)))

    def of(self, rank: int, kind: type[Any]) -> list[Any]:
        return [event for event in self.events[rank] if isinstance(event, kind)]

    def value(self, rank: int) -> Any:
        """What its last call returned."""
        return payload.unpack_value(self.of(rank, Returned)[-1].value)

    def failed(self, rank: int = 0) -> Failed:
        (found,) = self.of(rank, Failed)
        assert isinstance(found, Failed)
        return found

    def steps(self, rank: int = 0) -> list[str]:
        """Its events in short, without samples of its memory and its exit."""
        return [
            event.phase.value if isinstance(event, PhaseChanged) else event.kind
            for event in self.events[rank]
            if not isinstance(event, (Heartbeat, MemoryPeaks, Exited))
        ]

    def _on_event(self, rank: int, event: Event) -> None:
        self.order[rank].append(event.kind)
        if isinstance(event, Written):
            self.output[rank, {"stdout": "out", "stderr": "err"}[event.stream]] += b"".join(event.data)
            return
        if isinstance(event, Exited):
            assert not self.of(rank, Exited)
            self.exits[rank] = event
        self.events[rank].append(event)


def run(engine: Engine, function: Callable[..., Any], *args: Any, size: int = 1, **options: Any) -> list[Any]:
    """Runs a function on a group of its own."""
    with Group(engine, size, **options) as group:
        return group.run(function, *args)


def pids(groups: Sequence[Group]) -> list[int]:
    return [pid for group in groups for pid in group.wait_for_hello()]
