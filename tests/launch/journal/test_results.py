"""The result of a job, asked for where it did not run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from notebook_accel.errors import JobCancelledError, JobLostError, LaunchError, RankError, RankTimeoutError
from notebook_accel.events import AttemptStarted, Exited, Failed, Raised, Returned
from notebook_accel.launch.job import rank_error
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import results
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.results import Results
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.wire.payload import pack_value
from tests.launch.journal.cases import followed


def returned(value: Any) -> Returned:
    return Returned(pack_value(value, frozenset()))


def failed(error: Exception) -> Failed:
    raised = Raised(type(error).__name__, f"{type(error).__name__}: {error}", [])
    return Failed([raised], at=1.0, exception=pack_value(error, frozenset()))


def ask(record: Record) -> Any:
    return results.result_of(followed(record), record)


@pytest.fixture
def record(state: Path, job: Job) -> Record:
    """Of a detached job."""
    record = Journal(job, detached=True).open()
    Results(record.results, job)
    job.apply(None, AttemptStarted(0))
    return record


def test_values_are_those_that_the_ranks_returned(job: Job, record: Record) -> None:
    job.apply(1, returned({"loss": 0.5}))
    job.apply(0, returned("first"))
    job.finish(Status.DONE)
    assert ask(record) == ["first", {"loss": 0.5}]
    assert record.results.stat().st_mode & 0o777 == 0o600


def test_values_that_are_all_none_are_none(job: Job, record: Record) -> None:
    for rank in (0, 1):
        job.apply(rank, returned(None))
    job.finish(Status.DONE)
    assert ask(record) is None


def test_values_of_an_attempt_that_failed_are_forgotten(job: Job, record: Record) -> None:
    job.apply(0, returned("old"))
    job.apply(1, failed(ValueError("no")))
    job.apply(None, AttemptStarted(1))
    for rank in (0, 1):
        job.apply(rank, returned("new"))
    job.finish(Status.DONE)
    assert ask(record) == ["new", "new"]


def test_a_value_that_cannot_be_unpickled_here_names_its_rank(job: Job, record: Record) -> None:
    job.apply(0, returned(1))
    job.apply(1, Returned([b"cnowhere\nnothing\n."]))
    job.finish(Status.DONE)
    for _ in range(2):
        with pytest.raises(RankError, match="rank 1 returned a value that can't be unpickled in the notebook"):
            ask(record)


def test_the_values_of_a_job_of_another_kernel_are_not_to_be_had(state: Path, job: Job) -> None:
    record = Journal(job).open()
    for rank in (0, 1):
        job.apply(rank, returned(rank))
    job.finish(Status.DONE, [0, 1])
    with pytest.raises(JobLostError, match=r"train\(\) is done, .* With detach=True, any notebook can get the result"):
        ask(record)


def test_an_error_reads_as_it_did_where_it_happened(job: Job, record: Record) -> None:
    job.apply(1, failed(KeyError("lost")))
    job.apply(0, Exited(None, signal=9, at=2.0))
    error = rank_error.error(job.ranks, oom_killed=True)
    job.finish(Status.FAILED, error=error)
    with pytest.raises(RankError) as raised:
        ask(record)
    assert str(raised.value) == str(error)
    assert isinstance(raised.value.__cause__, KeyError)
    assert [(each.ranks, type(each.exception)) for each in raised.value.failures] == [
        ((1,), KeyError),
        ((0,), type(None)),
    ]


def test_without_its_exception_an_error_has_a_stand_in(state: Path, job: Job) -> None:
    record = Journal(job).open()
    job.apply(1, failed(KeyError("lost")))
    job.finish(Status.FAILED, error=rank_error.error(job.ranks, oom_killed=False))
    with pytest.raises(RankError) as raised:
        ask(record)
    assert raised.value.rank == 1
    assert repr(raised.value.__cause__) == """RuntimeError("KeyError: 'lost'")"""


@pytest.mark.parametrize(
    ("error", "cls", "text"),
    [
        (RankTimeoutError("too late"), RankTimeoutError, "too late"),
        (LaunchError("no server"), LaunchError, "no server"),
        (MemoryError("no room"), LaunchError, "MemoryError: no room"),
        (KeyError("x"), LaunchError, "KeyError: 'x'"),
    ],
)
def test_an_error_of_the_launch_keeps_its_class(
    job: Job, record: Record, error: Exception, cls: type, text: str
) -> None:
    """Of other packages, it is named: their modules need not be here."""
    job.finish(Status.FAILED, error=error)
    with pytest.raises(cls) as raised:
        ask(record)
    assert type(raised.value) is cls
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("status", "error", "cls"),
    [
        (Status.CANCELLED, None, JobCancelledError),
        (Status.INTERRUPTED, KeyboardInterrupt("was interrupted"), JobCancelledError),
        (Status.LOST, JobLostError("was killed"), JobLostError),
    ],
)
def test_a_job_that_was_ended_says_so(
    job: Job, record: Record, status: Status, error: BaseException | None, cls: type
) -> None:
    job.finish(status, error=error)
    with pytest.raises(cls, match="was "):
        ask(record)


class Trap:
    """Says that it was unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("part", ["results", "path", "parent"])
def test_what_others_could_have_written_is_not_unpickled(job: Job, record: Record, tmp_path: Path, part: str) -> None:
    for rank in (0, 1):
        job.apply(rank, Returned([pickle.dumps(Trap(tmp_path / f"sprung {rank}"))]))
    job.finish(Status.DONE)
    path = {"results": record.results, "path": record.path, "parent": record.path.parent}[part]
    path.chmod(0o777)
    with pytest.raises(JobLostError, match=rf"other users may have written to {path}: a pickle can run any code"):
        ask(record)
    assert not list(tmp_path.glob("sprung*"))


def test_damaged_results_are_refused(job: Job, record: Record) -> None:
    job.apply(0, returned(1))
    job.finish(Status.DONE)
    record.results.write_bytes(b"\xff" * 100)
    with pytest.raises(JobLostError, match="its results are damaged"):
        ask(record)


def test_results_that_cannot_be_written_are_an_error_of_the_job(state: Path, job: Job) -> None:
    results = Results(state / "missing" / "results", job)
    for rank in (0, 1):
        job.apply(rank, returned(rank))
    _, error = results.collect(job.ranks)
    assert isinstance(error, LaunchError)
    assert f"all ranks returned, but their values could not be stored in {state / 'missing'}: [Errno 2]" in str(error)
