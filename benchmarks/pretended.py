"""Machines, agents and ranks that there are not: `srun` and `sinfo` for a notebook whose cluster is to look large.

What stands in for `srun` is one process. It calls the bridge as often as there are machines, over the real wire, and
says on each connection what an agent and its ranks would send: as much and as often as requested, and merged by the
class that merges it in a real rank. It runs nothing of the user's. What the ranks do is in their environment:

    PRETEND_GATES   a folder; they return once it holds `end`, and the last one fails once it holds `fail`
    PRETEND_RATE    how many metrics each logs a second
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from notebook_accel.events import (
    Bar,
    Event,
    Exited,
    Failed,
    Frame,
    Heartbeat,
    Hello,
    Phase,
    PhaseChanged,
    Raised,
    Reports,
    Returned,
    Written,
)
from notebook_accel.launch.cluster import connection, protocol
from notebook_accel.launch.cluster.event_frames import EventFrames, coalesce
from notebook_accel.launch.cluster.versions import versions
from notebook_accel.launch.rank.coalescer import Coalescer
from notebook_accel.launch.wire.constants import REPORT_INTERVAL

NODES, CPUS = 125, 8
LINE = "begins"
"""What each rank writes first."""
_TOTALS = (200, 2000, 20000)
_BEAT = 5.0


@contextmanager
def slurm() -> Iterator[None]:
    """Has `cluster="slurm"` find these machines, in all that is started from here."""
    before = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("srun", "sinfo"):
            script = Path(folder, name)
            home = Path(__file__).parent.parent
            script.write_text(f'#!/bin/sh\nPYTHONPATH={home} exec {sys.executable} {__file__} {name} "$@"\n')
            script.chmod(0o700)
        os.environ["PATH"] = f"{folder}:{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before


class Rank:
    """What one says, until it has ended."""

    def __init__(self, agent: Agent, start: Mapping[str, Any], number: int, environ: Mapping[str, str]) -> None:
        self._agent = agent
        self._number = number
        self._frames = EventFrames(start["group"], start["label"], start["ahead"])
        self._gates = Path(environ["PRETEND_GATES"])
        self._rate = float(environ["PRETEND_RATE"])
        self._is_last = number == int(environ["WORLD_SIZE"]) - 1
        self._latest = Coalescer(start["pace"])
        self._began: float | None = None
        self._beat_at = time.monotonic() + _BEAT
        self._logged = 0
        self.sent = 0
        """How many metrics it has sent."""
        self.ended = False
        self._say(Hello(os.getpid(), ""))

    def call(self) -> None:
        self._began = time.monotonic()
        self._say(PhaseChanged(Phase.LOADING))
        self._say(PhaseChanged(Phase.RUNNING))
        self._say(Written("stdout", [f"{LINE}\n".encode()]))

    def end(self, signum: int | None = None) -> None:
        if not self.ended:
            self.ended, self._began = True, None
            self._say(Exited(None if signum else 0, signum, at=time.time(), peak_resident=2**29))

    def turn(self, now: float, gates: set[str]) -> None:
        """What a rank does ten times a second."""
        if self._began is None:
            return
        while self._logged < (now - self._began) * self._rate:
            self._logged += 1
            self._latest.add_metrics({"loss": 1 / self._logged}, self._logged)
        self._move_bars(now - self._began)
        self._tell(self._latest.take(now))
        if now >= self._beat_at:
            self._beat_at = now + _BEAT
            self._say(Heartbeat(2**29 + int(now) * 2**20))
        if "end" in gates:
            self._answer(Returned())
        elif "fail" in gates and self._is_last:
            frame = Frame("train.py", 7, "train")
            self._answer(Failed([Raised("ValueError", "ValueError: pretended", [frame])], time.time()))
            (self._gates / "failed").write_text(str(time.time()))

    def _move_bars(self, elapsed: float) -> None:
        for depth, total in enumerate(_TOTALS):
            n = elapsed * total / 600 * (1 + self._number % 7 / 100) % total
            self._latest.add(Bar(depth, int(n), total, "bar", rate=total / 600, elapsed=elapsed))

    def _answer(self, event: Event) -> None:
        self._tell(self._latest.take_all(time.monotonic()))
        self._say(event)
        self._began = None

    def _tell(self, events: Iterable[Event]) -> None:
        for event in events:
            self.sent += event.count if isinstance(event, Reports) else 0
            self._say(event)

    def _say(self, event: Event) -> None:
        self._agent.tell(self._frames.of(self._number, event))


class Agent:
    """What one says on its connection."""

    def __init__(self, name: str, line: connection.FrameConnection) -> None:
        self.line = line
        self.ranks: dict[tuple[int, int], Rank] = {}
        self._waiting: list[protocol.Frame] = []
        self._spoke = time.monotonic()
        node = {"node": name, "node_rank": 0, "host": name, "address": line.address}
        line.send([({"op": "joined", **node, "versions": versions(), "clock": time.time()}, ())])

    def tell(self, frame: protocol.Frame) -> None:
        self._waiting.append(frame)

    def read(self) -> None:
        for header, _ in self.line.receive():
            self._on_frame(header)
        self.flush(time.monotonic())

    def flush(self, now: float) -> None:
        """Says what there is to say, and at times that there is nothing."""
        if self._waiting or now - self._spoke > protocol.WAIT:
            self.line.send(coalesce(self._waiting) or [({"op": "alive"}, ())])
            self._waiting, self._spoke = [], now

    def turn(self, now: float, gates: set[str]) -> None:
        for rank in self.ranks.values():
            rank.turn(now, gates)
        self.flush(now)

    def _on_frame(self, header: dict[str, Any]) -> None:
        operation, group = header["op"], header.get("group")
        if operation == "offer":
            self.tell(({"op": "offered", "host": self.line.address, "port": 9}, ()))
        elif operation == "compare":
            self.tell(({"op": "compared", "group": group, "lacking": []}, ()))
        elif operation == "start":
            for number, own in zip(header["members"], header["environments"], strict=True):
                self.ranks[group, number] = Rank(self, header, number, {**header["environment"], **own})
        elif operation == "close":
            self.ranks = {key: rank for key, rank in self.ranks.items() if key[0] != group}
        for number in header.get("ranks", ()):
            rank = self.ranks[group, number]
            if operation == "call":
                rank.call()
            elif operation == "finish":
                rank.end()
            elif operation == "signal" and header["signum"] in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                rank.end(header["signum"])


def srun(count: int) -> None:
    """So many agents, until the bridge hangs up."""
    order = json.loads(sys.stdin.readline())
    secret = bytes.fromhex(order["secret"])
    agents = [Agent(f"node{index:03}", connection.call(*order["bridge"], secret)) for index in range(count)]
    with selectors.DefaultSelector() as selector:
        for agent in agents:
            selector.register(agent.line, selectors.EVENT_READ, agent.read)
        with suppress(OSError, EOFError):  # the bridge has ended, or wants no more
            _serve(selector, agents)


def _serve(selector: selectors.BaseSelector, agents: Sequence[Agent]) -> None:
    due = 0.0
    while True:
        for key, _ in selector.select(max(0.0, due - time.monotonic())):
            key.data()
        now = time.monotonic()
        if now < due:
            continue
        due = now + REPORT_INTERVAL
        ranks = [rank for agent in agents for rank in agent.ranks.values()]
        gates = set(os.listdir(ranks[0]._gates)) if ranks else set()
        for agent in agents:
            agent.turn(now, gates)
        if ranks and "end" in gates and "sent" not in gates:
            (ranks[0]._gates / "sent").write_text(str(sum(rank.sent for rank in ranks)))


def sinfo() -> None:
    """All machines, as Slurm lists them."""
    for index in range(NODES):
        print(f"node{index:03}|127.0.0.1|{CPUS}|(null)|idle")


def main() -> None:
    name, *options = sys.argv[1:]
    if name == "sinfo":
        sinfo()
    else:
        srun(next(int(option.partition("=")[2]) for option in options if option.startswith("--nodes=")))


if __name__ == "__main__":
    main()
