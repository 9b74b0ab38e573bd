"""Jobs for the tests: what a console is told, the fold as it can be compared, and events as ranks tell them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

from hypothesis import strategies as st

from notebook_accel import events
from notebook_accel.errors import JobLostError
from notebook_accel.events import Event, Phase, from_wire, to_wire
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import state_file
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.state_file import Head, StoredState
from notebook_accel.launch.show.console import Terminal

SIZE = 2
_OF_THE_JOB = (
    *("id", "name", "hardware", "world_size", "label", "started"),
    *("attempt", "status", "stopping", "stalled", "ended", "outcome"),
)


class Notices(Terminal):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def notice(self, text: str) -> None:
        self.told.append(text)


def fold(job: Job) -> dict[str, Any]:
    """Everything that its events have made of a job."""
    ranks = []
    for state in job.ranks:
        found = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        found["bars"] = list(state.bars.items())  # their order too
        found["metrics"] = list(state.metrics.items())
        ranks.append(found)
    of_the_job = (
        "stopping",
        "stalled",
        "id",
        "name",
        "hardware",
        "world_size",
        "label",
        "started",
        "attempt",
        "status",
        "ended",
        "outcome",
        "changes",
        "controls",
        "tunables",
        "rule_changes",
        "seed",
    )
    metrics = {name: job.charts.drawn(name, (), 99) for name in job.charts.names}
    reports = sorted(job.report_log.read(), key=lambda entry: entry[0])
    return {"ranks": ranks, "metrics": metrics, "reports": reports, **{name: getattr(job, name) for name in of_the_job}}


def followed(record: Record) -> Job:
    """The job as it is on disk."""
    found = FollowedJob(record, show=lambda: None)
    for _ in found.read():
        pass
    return found.job


def state_of(record: Record) -> bytes:
    """The last state on disk, with its head."""
    stored = StoredState.read(record.path)
    return b"\n".join([stored.head.line()[:-1], *stored.lines, b""])


def put_state(record: Record, state: bytes) -> None:
    """Replaces the state on disk; if it has a head, the checksum is right."""
    global _states
    _states += 1
    first, newline, rest = state.partition(b"\n")
    with contextlib.suppress(JobLostError):
        first, newline = Head.parse(first).of(_states, rest).line()[:-1], b"\n"
    for name in state_file.NAMES:
        (record.path / name).unlink(missing_ok=True)
    (record.path / state_file.NAMES[0]).write_bytes(first + newline + rest)


_states = 10**9
"""How many states were replaced, from a number that no job reaches."""


def arrived(event: Event) -> Event:
    """As it comes from the rank."""
    header, blobs = to_wire(event)
    return from_wire(json.loads(json.dumps(header)), blobs)


def displayed(text: str) -> list[bytes]:
    """The bundle of an output with this text; none for an empty one."""
    return [json.dumps({"data": {"text/plain": text}, "metadata": {}}).encode()] if text else []


numbers = st.floats(0, 100, allow_subnormal=False)
names = st.sampled_from(["loss", "accuracy"])
_LINE = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=9)
_TOLD = (
    st.builds(
        events.Bar,
        bar=st.integers(0, 3) | st.integers(0, 50),
        n=numbers,
        total=st.none() | numbers,
        depth=st.integers(0, 2),
        closed=st.booleans(),
        leave=st.booleans(),
    ),
    st.builds(events.Metrics, values=st.dictionaries(names, numbers), step=st.none() | st.integers(0, 9), at=numbers),
    st.builds(
        events.Lines, stream=st.sampled_from(["stdout", "stderr"]), texts=st.lists(_LINE, min_size=1, max_size=3)
    ),
    st.builds(
        events.Heartbeat,
        resident=st.integers(0, 9),
        device_used=st.none() | st.integers(0, 9),
        step=st.none() | st.integers(0, 9),
    ),
    st.builds(
        events.StepTimes,
        seconds=st.dictionaries(st.sampled_from(["data", "rest"]), numbers),
        steps=st.integers(1, 9),
        measured=st.integers(1, 9),
        workers=st.none() | st.integers(0, 9),
    ),
    st.builds(events.Hello, pid=st.integers(1, 9), host=st.just("host")),
    st.builds(events.Saving, is_on=st.booleans()),
    st.builds(events.PhaseChanged, phase=st.sampled_from(Phase), detail=st.sampled_from(["", "all_reduce"])),
    st.builds(events.NodeLeaving),
    st.builds(events.Signalled, signal=st.sampled_from([2, 9, 15])),
    st.builds(
        events.Failed,
        chain=st.sampled_from(["E", "KeyboardInterrupt"]).map(lambda name: [events.Raised(name, "no", [])]),
        at=numbers,
    ),
    st.builds(
        events.Shown,
        display_id=st.sampled_from([None, "a", "b"]),
        update=st.booleans(),
        bundle=st.sampled_from(["", "x", "y" * 50]).map(displayed),
    ),
    st.builds(events.Cleared, wait=st.booleans()),
    st.just(events.Returned()),
    st.builds(events.Exited, code=st.none() | st.integers(0, 1), signal=st.none() | st.just(9), at=numbers),
)
of_a_rank = st.tuples(st.integers(0, SIZE - 1), st.one_of(*_TOLD).map(arrived))
_PLACES = ([], [events.Location(0, Phase.WAITING, "all_reduce", "In[5] line 12", [])])
of_the_job = st.tuples(
    st.none(),
    st.builds(
        events.AttemptStarted,
        attempt=st.integers(0, 3),
        size=st.sampled_from([0, SIZE]),
        reached=st.none() | st.integers(0, 9),
    )
    | st.builds(events.TrainingStarted, step=st.integers(0, 9))
    | st.builds(events.Controlled, number=st.integers(1, 9), action=st.sampled_from(["pause", "resume"]), at=numbers)
    | st.builds(events.ControlsChanged, refusals=st.dictionaries(st.sampled_from(["pause"]), st.just("no")))
    | st.builds(events.CheckpointSaved, step=st.integers(0, 9))
    | st.builds(events.Remarked, text=_LINE)
    | st.builds(events.Seeded, seed=st.integers(0, 9))
    | st.builds(events.TunableChanged, name=names, value=numbers)
    | st.builds(events.StopRequested, times=st.integers(1, 2))
    | st.builds(events.Stalled, places=st.sampled_from(_PLACES), since=numbers),
)
told = st.one_of(of_a_rank, of_a_rank, of_a_rank, of_the_job)
