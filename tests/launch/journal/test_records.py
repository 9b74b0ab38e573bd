"""Which jobs are kept, found, and taken for running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from notebook_accel.cli.main import main
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import AttemptStarted, DevicesAwaited, Lines, Phase, PhaseChanged
from notebook_accel.jupyter.reader.job_fold import glance
from notebook_accel.launch.driver.attach import jobs
from notebook_accel.launch.job import describe
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import marks, pruning, records, writing
from notebook_accel.launch.journal.followed_job import FollowedJob
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.show import console
from notebook_accel.notebook.ipython import magic_commands
from notebook_accel.notebook.magics import accelerate
from notebook_accel.notebook.magics.command import command
from notebook_accel.owner import Owner
from tests.launch.journal.cases import put_state

MAX_JOBS = 20


@pytest.fixture(autouse=True)
def _few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pruning, "MOST_JOBS", MAX_JOBS)


def recorded(name: str = "train", *, at: float = 0.0, ended: bool = True) -> Record:
    job = Job(name, 0, 2)
    job.started += at
    pruning.prune()  # as a launch does while its ranks start
    record = Journal(job).open()
    if ended:
        job.finish(Status.DONE)
    return record


def test_the_last_jobs_are_kept(state: Path) -> None:
    made = [recorded(at=number) for number in range(MAX_JOBS + 3)]
    assert records.all_records() == made[3:]


def test_jobs_beyond_the_limit_are_removed_the_oldest_first(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pruning.VARIABLE, "1MB")
    made = [recorded(at=number) for number in range(4)]
    (made[0].path / "reports").write_bytes(bytes(10))
    (made[1].path / "results").write_bytes(bytes(1_100_000))
    fresh = [Record(record.path.with_name(record.path.name)) for record in made]
    pruning.prune()
    assert [record.path.exists() for record in fresh] == [True, True, True, True]  # their sizes are known already
    monkeypatch.setattr(pruning, "known_sizes", {})
    pruning.prune()
    assert [record.path.exists() for record in fresh] == [True, False, True, True]


def test_a_limit_that_is_no_size_is_named_once(
    state: Path, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(pruning.VARIABLE, "much")
    pruning.prune()
    pruning.prune()
    assert notices == ["NOTEBOOK_ACCEL_STATE_LIMIT='much' is not a size such as 500MB or 2GB: 1GB of jobs are kept"]


def test_a_job_that_runs_is_found_before_later_ones_that_have_ended(state: Path) -> None:
    running, ended = recorded(ended=False), recorded(at=1)
    assert records.find(None, "") == running
    running.mark_ended()
    assert records.find(None, "") == ended


def test_a_running_job_is_kept_however_old(state: Path) -> None:
    running = recorded(ended=False)
    made = [recorded(at=1 + number) for number in range(MAX_JOBS + 3)]
    assert records.all_records() == [running, *made[3:]]


def test_a_pinned_job_is_kept_however_old(state: Path) -> None:
    pinned = recorded()
    marks.change(pinned, {"pinned": True})
    made = [recorded(at=1 + number) for number in range(MAX_JOBS + 3)]
    assert records.all_records() == [pinned, *made[3:]]


def test_what_is_not_ours_is_left_alone(state: Path) -> None:
    for name in ("notes", "0123456789ab-xyz"):
        (state / name).mkdir(parents=True)
    for number in range(MAX_JOBS + 1):
        recorded(at=number)
    assert (state / "notes").is_dir()
    assert (state / "0123456789ab-xyz").is_dir()


def test_a_job_runs_until_it_says_that_it_has_ended(state: Path) -> None:
    assert recorded(ended=False).is_running()
    assert not recorded().is_running()


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def another(monkeypatch: pytest.MonkeyPatch, **changes: object) -> Record:
    """A job that a process runs which differs so from this one."""
    owner = replace(Owner.this(), **changes)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(writing.Owner, "this", lambda: owner)
        return recorded(ended=False)


def prune() -> list[Record]:
    """Records as many newer jobs as are kept; returns what is left of those before."""
    before = records.all_records()
    for number in range(MAX_JOBS):
        recorded(at=10 + number)
    return [record for record in before if record.path.exists()]


@pytest.mark.parametrize(
    "change",
    [lambda: {"pid": ended_process()}, lambda: {"began": Owner.this().began - 1}],
    ids=["it has ended", "another process has its number"],
)
def test_a_job_ends_with_its_process(
    state: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[], dict[str, int]]
) -> None:
    owner = replace(Owner.this(), **change())  # type: ignore[arg-type]
    monkeypatch.setattr(writing.Owner, "this", lambda: owner)
    record = recorded(ended=False)
    assert not record.is_running()
    (listed,) = jobs()
    assert listed.status.is_lost
    assert prune() == []


@pytest.mark.parametrize(
    ("origin", "runner", "ends"),
    [
        ("notebook.ipynb", {}, "kernel"),
        ("notebook.ipynb", {"detached": True}, "process"),
        ("", {}, "process"),
        ("", {"is_command": True}, "command"),
    ],
    ids=["a kernel", "a process of its own", "a script", "a command"],
)
def test_a_lost_job_names_what_it_ended_with(
    state: Path, monkeypatch: pytest.MonkeyPatch, origin: str, runner: dict[str, bool], ends: str
) -> None:
    owner = replace(Owner.this(), pid=ended_process())
    monkeypatch.setattr(console.Terminal, "origin", lambda _: origin)
    monkeypatch.setattr(writing.Owner, "this", lambda: owner)
    record = Journal(Job("train", 0, 2), **runner).open()
    (listed,) = jobs()
    followed = FollowedJob(record, show=lambda: None)
    followed.refresh()
    text = f"ended with its {ends}"
    assert listed.status_text.startswith(text)
    assert text in describe.headline(followed.job)
    assert glance(record).status.value == text


def test_a_silent_job_that_was_killed_lasted_until_its_last_sign(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = another(monkeypatch, pid=ended_process())
    os.utime(record.running, (time.time() + 3600,) * 2)
    (listed,) = jobs()
    assert listed.status.is_lost
    assert 3590 < listed.seconds < 3610


def test_a_job_outlives_a_step_of_the_clock(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux then tells of another time at which it has started, from which psutil counts."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = Owner.of(process.pid)
        record = another(monkeypatch, **vars(owner))
        now, began = psutil.boot_time(), psutil.Process(process.pid).create_time()
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: now + 3600)
        monkeypatch.setattr(psutil._pslinux, "BOOT_TIME", now + 3600, raising=False)
        assert psutil.Process(process.pid).create_time() > began + 3000
        assert record.is_running()
        assert prune() == [record]
    assert not record.is_running()
    assert record not in prune()


def test_a_process_is_known_by_when_it_began_and_where_its_number_counts() -> None:
    with open("/proc/self/stat") as file:
        assert Owner.this().began == int(file.read().split(")")[-1].split()[19])
    for word in (Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")):
        assert word in Owner.this().system


def test_a_process_that_is_not_yet_reaped_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    owner = Owner.of(process.pid)
    assert owner.is_alive()
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not owner.is_alive()
    process.wait()


def test_a_job_on_another_machine_runs_while_it_gives_signs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = another(monkeypatch, system="elsewhere", pid=ended_process())
    assert record.is_running()
    os.utime(record.running, (0, 0))
    assert not record.is_running()


def test_a_job_of_another_version_runs_as_long_as_its_process(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running, over = recorded(ended=False), another(monkeypatch, pid=ended_process())
    for record in (running, over):
        put_state(record, b'{"format":0}\n')
    assert (running.may_run(), over.may_run()) == (True, False)


@pytest.mark.parametrize(("hours", "kept"), [(0, True), (23, True), (25, False)])
def test_a_job_that_nothing_is_known_of_is_kept_for_a_day(
    state: Path, monkeypatch: pytest.MonkeyPatch, hours: int, kept: bool
) -> None:
    """On another machine, or begun where the disk had no room for the name of its process."""
    elsewhere, begun = another(monkeypatch, system="elsewhere"), recorded(at=2, ended=False)
    begun.running.write_bytes(b"")
    found = [elsewhere, begun]
    for record in found:
        os.utime(record.running, (time.time() - hours * 3600,) * 2)
    assert prune() == (found if kept else [])


def _without_duration(line: str) -> str:
    """A line of a listing without how long the job, which still runs, has run."""
    return re.sub(r" +[0-9.]+ s ", " ", line)


def test_jobs_are_listed_the_newest_first(state: Path) -> None:
    old, new = recorded("old", at=-3600), recorded("new", ended=False)
    listed = jobs()
    assert [(job.id, job.name, job.status, job.ranks) for job in listed] == [
        (new.id, "new", Status.RUNNING, 2),
        (old.id, "old", Status.DONE, 2),
    ]
    lines = repr(listed).splitlines()
    assert lines[0].startswith(f"{new.id}  20")
    assert lines[0].endswith("2 ranks  new()  running")
    assert "1:00:0" in lines[1]
    (listed_in_shell,) = CliRunner().invoke(main, ["jobs", "--last", "1"]).output.splitlines()
    assert _without_duration(listed_in_shell) == _without_duration(lines[0])
    assert [job.id for job in magic_commands.run(command, "%accelerate", "jobs --last 1")] == [new.id]


def test_a_job_that_waits_or_is_paused_is_listed_so(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FIRST_WRITE", 0.0)
    monkeypatch.setattr(writing, "WRITE_INTERVAL", 0.0)
    monkeypatch.setattr(writing, "WRITE_SHARE", 1e9)
    job = Job("train", 0, 2)
    journal = Journal(job)
    journal.open().reports.mkdir()  # not read: a list that is redrawn each second must not read what ranks report
    job.apply(None, DevicesAwaited("for GPU 1"))
    journal.refresh()
    assert repr(jobs()).endswith("train()  waiting")
    job.apply(None, AttemptStarted(0))
    for phase, listed in ((Phase.RUNNING, "running"), (Phase.PAUSED, "paused"), (Phase.RUNNING, "running")):
        for rank in range(2):
            job.apply(rank, PhaseChanged(phase))
            job.apply(rank, Lines("stdout", ['"paused"']))
        journal.refresh()
        assert repr(jobs()).endswith(f"train()  {listed}")
    job.finish(Status.DONE)


def test_the_ids_of_jobs_are_completed_without_reading_the_jobs(state: Path) -> None:
    made = [recorded(at=number).id for number in range(3)]
    for record in records.all_records():
        put_state(record, b"")
    shell: Any = None
    assert accelerate.complete("%accelerate", shell, ["attach"], "") == made[::-1]
    assert accelerate.complete("%accelerate", shell, ["attach"], made[1][:8]) == [made[1]]


def test_no_two_jobs_have_the_same_id() -> None:
    assert len({Job("train", 0, 2).id for _ in range(20_000)}) == 20_000


def test_no_jobs_are_an_empty_list(state: Path) -> None:
    assert jobs() == []
    assert repr(jobs()) == f"no readable job is recorded in {records.folder()}"


def test_a_job_that_cannot_be_read_is_not_listed(state: Path) -> None:
    good, other, empty = recorded(), recorded(), recorded()
    put_state(other, b'{"format":0}\n')
    put_state(empty, b"")
    assert [job.id for job in jobs()] == [good.id]


def test_a_job_is_found_by_the_beginning_of_its_id(state: Path) -> None:
    made = [recorded(at=number) for number in range(3)]
    for record in made:
        assert records.find(record.id, "") == record
        others = {each.id[:2] for each in made if each is not record}
        if record.id[:2] not in others:
            assert records.find(record.id[:2], "") == record


def test_without_an_id_the_last_job_of_the_notebook_is_found(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.current, "origin", lambda: "mine.ipynb")
    mine = recorded()
    monkeypatch.setattr(console.current, "origin", lambda: "theirs.ipynb")
    theirs = recorded(at=1)
    assert records.find(None, "mine.ipynb") == mine
    assert records.find(None, "new.ipynb") == theirs
    assert records.find(None, "") == theirs


def test_a_job_that_is_not_there_is_an_error_that_names_the_last(state: Path) -> None:
    with pytest.raises(ConfigurationError, match="no job has been launched yet, according to /"):
        records.find(None, "")
    record = recorded()
    for wrong in ("nothing", ""):
        with pytest.raises(ConfigurationError, match=rf"no job begins with '{wrong}'; the last are {record.id}\. "):
            records.find(wrong, "")


def test_an_id_of_digits_without_quotes_is_an_error_that_writes_them(state: Path) -> None:
    unquoted: Any = 780419
    with pytest.raises(ConfigurationError, match="a job's ID is a string: write '780419' instead of 780419"):
        records.find(unquoted, "")
