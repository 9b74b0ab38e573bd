"""Jobs on disk whose events the test writes: this process is their owner, so they run until the test ends them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from notebook_accel.events import AttemptStarted, Bar, Event, Failed, Metrics, Phase, PhaseChanged, Raised
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import writing
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.writing import Journal


class RecordedJob:
    """A job of two ranks that runs, and its journal."""

    def __init__(
        self,
        name: str = "train",
        at: float = 0.0,
        checkpoint_dir: str = "",
        arguments: Mapping[str, str] | None = None,
    ) -> None:
        self.job = Job(name, 0, 2, "2 × GPU", checkpoint_dir=checkpoint_dir, arguments=arguments)
        self.job.started += at
        self._journal = Journal(self.job)
        self.record: Record = self._journal.open()
        self.job.apply(None, AttemptStarted(0))
        for rank in range(2):
            self.job.apply(rank, PhaseChanged(Phase.RUNNING))
        self._journal.refresh()

    def add(self, *events: tuple[int, Event]) -> None:
        """Writes events of ranks."""
        for rank, event in events:
            self.job.apply(rank, event)
        self._journal.refresh()

    def reach(self, step: int, loss: float, name: str = "loss") -> None:
        """Both ranks have done so many of 100 steps, in tenths of a second each."""
        for rank in range(2):
            bar = Bar(0, n=step, total=100, rate=10.0, elapsed=step / 10)
            self.add((rank, bar), (rank, Metrics({name: loss}, step)))

    def fail(self, text: str) -> None:
        self.add((1, Failed([Raised("ValueError", text, [])], at=self.job.started + 1)))
        self.add((1, PhaseChanged(Phase.FAILED)))
        self.job.finish(Status.FAILED)


def end(job: RecordedJob, status: Status = Status.DONE) -> None:
    """Ends a job, and writes that."""
    job.job.finish(status)


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the jobs of the file's tests are; what is written there is written at once."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTEBOOK_ACCEL_STATE", str(folder))
        at_once = {"FIRST_WRITE": 0.0, "WRITE_INTERVAL": 0.0, "WRITE_SHARE": 1e9, "WATCHED_INTERVAL": 0.0}
        for name, value in {**at_once, "WATCHED_SHARE": 1e9}.items():
            patch.setattr(writing, name, value)
        yield folder / "jobs"


@pytest.fixture
def job() -> Iterator[RecordedJob]:
    """A job that runs."""
    made = RecordedJob()
    yield made
    if not made.job.status.ended:
        end(made)
