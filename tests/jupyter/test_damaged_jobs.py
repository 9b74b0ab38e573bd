"""Jobs whose journals hold what no version of this package writes: each says so, and the others are shown as ever."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from notebook_accel.errors import JobLostError
from notebook_accel.events import (
    AttemptStarted,
    Bar,
    CheckpointSaved,
    Controlled,
    ControlsChanged,
    EnergyUsed,
    Exited,
    Failed,
    Frame,
    GpuUsage,
    Heartbeat,
    Hello,
    HotLine,
    JobEnded,
    JobStarted,
    LargestArrays,
    Lines,
    LiveArray,
    Location,
    MemoryPeaks,
    OutOfMemory,
    Phase,
    ProcessUsage,
    Raised,
    Remarked,
    Rule,
    RuleChanged,
    Seeded,
    Stalled,
    StepTimes,
    StopRequested,
    TrainingStarted,
    TunableChanged,
)
from notebook_accel.insight.job_facts import facts
from notebook_accel.jupyter.model import JobRow
from notebook_accel.jupyter.reader import job_list
from notebook_accel.jupyter.reader.job_list import JobList
from notebook_accel.jupyter.reader.job_texts import JobTexts
from notebook_accel.jupyter.reader.panels import Panels, UnreadableJobError
from notebook_accel.launch.driver import attach
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.state_file import decode, encode
from notebook_accel.panel.panel_state import StateMaker
from tests.jupyter.conftest import RecordedJob, end
from tests.launch.journal.cases import put_state, state_of

WRONG: list[Any] = [None, -1, 0, 10**400, 1e308, float("nan"), "<b>", [{}]]
FRAMES = [Frame("/a.py", 3, "train", "x = 1")]
ARRAYS = [LiveArray("a", "cpu", 100, "float32 [3]", FRAMES[0])]
OF_THE_JOB = (
    AttemptStarted(1, 2, 4),
    TrainingStarted(3),
    Controlled(1, "pause", 4, at=1.0),
    Controlled(2, "tune", 5, before={"lr": 0.1}, values={"lr": 0.2}, at=2.0),
    TunableChanged("lr", 0.1, 0.0, 1.0),
    RuleChanged(1, Rule("loss", "pause", above=1.0), met=1, last="loss is 3"),
    RuleChanged(2, Rule("loss", "notify", patience=3, mode="min")),
    ControlsChanged({"pause": ""}),
    CheckpointSaved(4),
    Seeded(3),
    Remarked("why"),
    Stalled([Location(rank, Phase.WAITING, "all_reduce", "In[5] line 3", FRAMES) for rank in range(2)], 1.0),
    StopRequested(1),
)
OF_A_RANK = (
    Hello(1, "host"),
    *(Heartbeat(step * 10**8, 10**9, 10**10, step, at=float(step)) for step in (1, 2)),
    Bar(0, n=3, total=10, rate=2.0, elapsed=1.5, at=3.0),
    Bar(1, n=3, total=10, rate=0.5, elapsed=1.5, at=3.0, depth=1),
    ProcessUsage(50.0, 10**8, 2, 10.0, 10**7),
    GpuUsage(50.0, 10**9, 10**10, 60.0, 100.0, 300.0, ["temperature"], {"PCIe replays": 3}),
    EnergyUsed({"gpu": 100.0}, {"package": 50.0}, 5.0),
    StepTimes({"data": 1.0, "rest": 1.0}, 10, 9, samples=90, lines=[HotLine("data", "In[1] line 3", "x", 0.5)]),
    MemoryPeaks({"forward": 10**9}, {"forward": 10**9}),
    LargestArrays(ARRAYS, 10**9),
    Failed([Raised("ValueError", "ValueError: x", FRAMES)], at=3.0, step=4, out_of_memory=OutOfMemory("cpu", ARRAYS)),
    Exited(1, at=4.0, peak_resident=10**9),
)


@pytest.fixture
def jobs() -> JobList:
    return JobList()


@pytest.fixture
def damaged() -> Iterator[RecordedJob]:
    """Stands beside a sound one."""
    sound, damaged = RecordedJob("sound"), RecordedJob("damaged", at=1)
    for event in OF_THE_JOB:
        damaged.job.apply(None, event)
    damaged.add(*((0, event) for event in OF_A_RANK))
    damaged.reach(1, 2.0)
    damaged.add((0, Lines("stdout", ["hello"])))
    for job in (sound, damaged):
        end(job)
    yield damaged
    for record in records.all_records():
        record.remove()


def rows(jobs: JobList, **options: bool) -> dict[str, JobRow]:
    """The rows of `jobs`, as a browser gets them, by title."""
    listing = json.loads(json.dumps(jobs.listing(**options), allow_nan=False))
    return {row["title"]: row for row in listing["jobs"]}


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value in JSON."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths_in(inner, (*path, key))


def with_wrong(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    made = copy.deepcopy(value)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = wrong
    return made


def test_a_value_of_a_wrong_type_or_size_hides_no_other_job(damaged: RecordedJob) -> None:
    """Each value in the journal, in turn, but one of each kind of line at a time; the first such line stands for all.

    Of the head and of the first line, one at a time: without them, the job can't be read at all.
    """
    lines = [json.loads(line) for line in state_of(damaged.record).splitlines()]
    alone, together = [0, 1], [*{line.get("kind"): index for index, line in enumerate(lines[2:], 2)}.values()]
    paths = {index: [*paths_in(lines[index])] for index in (*alone, *together)}
    turns = [{index: path} for index in alone for path in paths[index][1:]]
    turns += [
        {index: paths[index][number] for index in together if number < len(paths[index])}
        for number in range(max(len(paths[index]) for index in together))
    ]
    assert len(together) > 20
    for turn in turns:
        for wrong in WRONG if len(turn) > 1 else WRONG[:4]:
            changed = {index: with_wrong(lines[index], path, wrong) for index, path in turn.items()}
            found = [changed.get(index, line) for index, line in enumerate(lines)]
            put_state(damaged.record, "".join(f"{json.dumps(line)}\n" for line in found).encode())
            check_both(damaged)


def test_a_journal_that_was_cut_off_hides_no_other_job(damaged: RecordedJob) -> None:
    whole = state_of(damaged.record)
    for length in range(0, len(whole), len(whole) // 40):
        put_state(damaged.record, whole[:length])
        check_both(damaged)


def check_both(damaged: RecordedJob) -> None:
    jobs, panels = JobList(), Panels()
    for options in ({}, {"brief": True}):
        found = rows(jobs, **options)
        assert (len(found), found["sound()"]["note"]) == (2, "")
    assert len(attach.jobs()) in (1, 2), "one that can't be read isn't listed"
    with refusing():
        assert json.dumps(panels.update(damaged.job.id, "page", -1, []), allow_nan=False)
    panels.close()
    texts, name = JobTexts(), damaged.job.id
    for read in (
        lambda: json.dumps(facts(attach.find(name)), allow_nan=False),
        lambda: texts.describe(name),
        lambda: texts.explain(name),
        lambda: texts.log(name, None, 10, ""),
        lambda: texts.metric(name, "loss", 5),
        lambda: texts.look(name, "loss<0.1"),
        lambda: texts.list(10),
    ):
        with refusing():
            assert read()
    texts.close()


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """What reads a job may refuse it, but meets no error that it doesn't expect."""
    why = ""
    try:
        yield
    except JobLostError as error:
        why = str(error)
    assert "its journal is damaged" not in why


def test_an_error_that_no_reader_expects_is_told_in_the_row_of_its_job(
    jobs: JobList, damaged: RecordedJob, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = job_list.row
    with monkeypatch.context() as patch:
        patch.setattr(job_list, "row", lambda job, *rest: 1 / 0 if job.name == "damaged" else whole(job, *rest))
        for _ in range(2):
            found = rows(jobs)
            assert found["sound()"]["note"] == ""
            row = found[damaged.job.id]
            assert "can't be read: its journal is damaged" in row["note"]
            assert "ZeroDivisionError" in row["note"]
            put_state(damaged.record, state_of(damaged.record))  # so that it is read again
    assert capfd.readouterr().err.count("ZeroDivisionError") == 1, "the server's log has it once"
    assert rows(jobs)["damaged()"]["status"] == "done"


def test_a_panel_of_a_job_that_leads_to_such_an_error_says_so(
    damaged: RecordedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels = Panels()
    with monkeypatch.context() as patch:
        patch.setattr(StateMaker, "whole", lambda _: 1 / 0)
        with pytest.raises(UnreadableJobError, match=r"This job can't be read: its journal is damaged.*ZeroDivision"):
            panels.update(damaged.job.id, "page", -1, [])
    assert panels.update(damaged.job.id, "page", -1, [])["state"]["head"]["name"] == "damaged()"
    panels.close()


@pytest.mark.parametrize(
    "event",
    [
        AttemptStarted(0, size=-1),
        AttemptStarted(0, size=2**40),
        JobEnded("done", at=float("nan")),
        JobStarted("0a0b0c", "train", 0, 2, 2, "2 × CPU", None, at=1e300),
    ],
)
def test_a_line_whose_values_cannot_be_is_left_out(event: Any) -> None:
    assert decode(encode(None, event)) is None
