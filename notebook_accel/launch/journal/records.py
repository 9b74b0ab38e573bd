"""The jobs on disk: a folder each, which only its user can read; `pruning.py` removes old ones."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import time
import weakref
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.config.file import user_folder
from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.events import JobEnded
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import state_file
from notebook_accel.launch.journal.private_files import is_written_by_us, make_private, open_private, write_all
from notebook_accel.launch.journal.state_file import Head, StoredState
from notebook_accel.owner import Owner

VARIABLE = "NOTEBOOK_ACCEL_STATE"
KEEPALIVE_INTERVAL = 20.0
"""Seconds between two updates of a job's `running` file, for processes on other machines that share the folder."""
_KEEPALIVE_TIMEOUT = 3 * KEEPALIVE_INTERVAL
WATCHED_FOR = 5.0
"""Seconds for which a job counts as watched after somebody has looked at it."""
_ABANDONED_AFTER = 24 * 3600.0
"""Seconds without a keepalive after which a job may be removed; long, since clocks of machines may differ."""
_UNWRITTEN = "ended-"
_REQUEST = "request-"
_NAME = re.compile(r"[0-9a-f]{12}-[0-9a-f]{12}")
_in_use: set[Path] = set()
"""Folders of ended jobs that this process still reads."""
_ended: dict[Path, set[str]] = {}
"""By the folder of all jobs: the names of those that this process knows to have ended. None begins again."""


def folder() -> Path:
    """The folder that holds the folders of all jobs."""
    state = os.environ.get(VARIABLE)
    return Path(os.path.expanduser(state) if state else user_folder("state"), "jobs")


@dataclass(frozen=True)
class Record:
    """The folder of one job."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name.rpartition("-")[2]

    @property
    def reports(self) -> Path:
        """Every report of its ranks."""
        return self.path / "reports"

    @property
    def results(self) -> Path:
        """What the ranks returned or raised; only for a detached job."""
        return self.path / "results"

    @property
    def saved_launch(self) -> Path:
        """What is needed to launch the job again; only for one that saves checkpoints, until it is done."""
        return self.path / "launch"

    @property
    def outputs(self) -> Path:
        """Where notebooks show the job."""
        return self.path / "outputs"

    @property
    def running(self) -> Path:
        """A file that exists while the job runs; it names its process in a form that every version can read."""
        return self.path / "running"

    @property
    def _watched(self) -> Path:
        """A file whose time is that at which another process was last asked to show the job."""
        return self.path / "watched"

    def memory_snapshot(self, rank: int) -> Path:
        """The snapshot of the memory of a rank's devices, which had run out."""
        return self.path / f"memory-rank{rank}.pickle"

    def reply(self, request: str) -> Path:
        """The reply to a request."""
        return self.path / request.replace(_REQUEST, "reply-")

    def head(self) -> Head:
        """The head of its state.

        Raises:
            JobLostError: There is none that this version can read.
        """
        return StoredState.read(self.path).head

    def is_running(self) -> bool:
        """Whether the job runs: its process exists, and has not recorded the end."""
        return self._runs(_KEEPALIVE_TIMEOUT)

    def may_run(self) -> bool:
        """Whether the job may still run, as far as this machine can tell; if so, its folder must not be removed."""
        return self._runs(_ABANDONED_AFTER)

    def _runs(self, silence: float) -> bool:
        """Whether its process exists; if that can't be known here, whether it was silent for less than some seconds."""
        try:
            last_keepalive = self.running.stat().st_mtime
            owner = Owner.parse(self.running.read_text())
        except OSError:
            return False
        except ValueError:  # the disk was full
            owner = None
        if owner is not None and owner.is_local:
            return owner.is_alive()
        return time.time() - last_keepalive < silence

    def watch(self) -> None:
        """Tells the process that runs the job that somebody looks at what it records."""
        with contextlib.suppress(OSError):  # the job is then recorded less often
            os.close(open_private(self._watched, os.O_WRONLY | os.O_CREAT))
            os.utime(self._watched)

    def is_watched(self) -> bool:
        """Whether somebody looks at what is recorded of the job, in another process."""
        try:
            return time.time() - self._watched.stat().st_mtime < WATCHED_FOR
        except OSError:
            return False

    def last_written(self) -> float:
        """When its process last wrote its state, or, since a job may be silent for long, its keepalive."""
        found = []
        for name in (*state_file.NAMES, self.running.name):
            with contextlib.suppress(OSError):
                found.append((self.path / name).stat().st_mtime)
        return max(found, default=time.time())

    def mark_running(self, owner: Owner) -> None:
        """Creates the `running` file."""
        fd = open_private(self.running, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):  # a full disk allows empty files alone
            write_all(fd, str(owner).encode())
        os.close(fd)

    def mark_ended(self, unwritten: str = "") -> None:
        """Removes the `running` file.

        Args:
            unwritten: The status of the job, if the journal lacks it. It becomes the name of the file, which a full
                disk allows.
        """
        for request in self.requests():
            with contextlib.suppress(OSError):
                os.unlink(self.path / request)
        with contextlib.suppress(OSError):
            if unwritten:
                os.utime(self.running)
                self.running.rename(self.path / f"{_UNWRITTEN}{unwritten}")
            else:
                self.running.unlink()

    def unwritten_end(self) -> JobEnded | None:
        """The end of a job that could not be written to the journal, as the name of its file tells it."""
        for status in Status:
            with contextlib.suppress(OSError):
                at = (self.path / f"{_UNWRITTEN}{status.value}").stat().st_mtime
                return JobEnded(status.value, at, self._unrecorded(), JobLostError.__name__)
        return None

    def _unrecorded(self) -> str:
        return (
            f"how the job ended could not be recorded, because its journal in {self.path} could not be written. "
            f"Probably that disk was full. Before the next launch, free space there, or set {VARIABLE} to a folder on "
            "another disk"
        )

    def request(self, content: bytes = b"") -> str:
        """Requests something of the process that runs the job, by a file that appears whole.

        Args:
            content: What is requested; nothing for a stop, since a full disk allows empty files alone.

        Returns:
            The file's name. The process removes it when it has read the content, or at the job's end.

        Raises:
            OSError: It can't be written, or the job has ended.
        """
        self.running.stat()
        name = f"{_REQUEST}{time.time_ns():020d}-{os.urandom(4).hex()}"
        new = self.path / f"new-{name}"
        with open(new, "wb", opener=open_private) as file:
            file.write(content)
        new.rename(self.path / name)
        return name

    def requests(self) -> list[str]:
        """The names of the requests that are there, in order."""
        try:
            return sorted(name for name in os.listdir(self.path) if name.startswith(_REQUEST))
        except OSError:
            return []

    def request_stop(self) -> None:
        """Requests that the job stop."""
        with contextlib.suppress(FileNotFoundError):  # it has just ended
            self.request()

    def stop_requests(self) -> int:
        """The number of stop requests so far."""
        return sum(map(self.is_stop_request, self.requests()))

    def is_stop_request(self, name: str) -> bool:
        try:
            return not os.stat(self.path / name).st_size
        except OSError:
            return False

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def create(job_id: str, at: float) -> Record:
    """Creates the folder of a job that began at `at`.

    Raises:
        OSError: It can't be created.
    """
    parent = folder()
    if parent.parts[0].startswith("~"):
        raise FileNotFoundError("the user has no home folder")
    make_private(parent)
    record = Record(parent / f"{int(at * 1000):012x}-{job_id}")
    record.path.mkdir(mode=0o700)
    return record


def is_in_use(record: Record) -> bool:
    """Whether this process still reads the folder of an ended job."""
    return record.path in _in_use


def keep_for(record: Record, job: object) -> None:
    """Makes `pruning.prune` keep a folder as long as this process has the job, which reads its reports there."""
    if record.path not in _in_use:
        _in_use.add(record.path)
        weakref.finalize(job, _in_use.discard, record.path)


def are_of(job_id: str) -> bool:
    """Whether a job with this ID is recorded."""
    return any(name.endswith(f"-{job_id}") for name in names(folder()))


def all_records() -> list[Record]:
    """The records of all jobs, oldest first."""
    parent = folder()
    return [Record(parent / name) for name in names(parent)]


def last_records(count: int) -> list[Record]:
    """The records of the last jobs, newest first."""
    parent = folder()
    return [Record(parent / name) for name in names(parent)[: -count - 1 : -1]]


def unended_records() -> list[Record]:
    """The records of jobs that have not recorded their end, oldest first; fast also among a thousand that have."""
    parent = folder()
    every = set(_listed(parent))
    ended = _ended.setdefault(parent, set())
    ended.intersection_update(every)
    found = []
    for name in sorted(filter(_is_name, every - ended)):
        path = f"{parent}/{name}"
        if os.path.lexists(f"{path}/running"):
            found.append(Record(Path(path)))
        elif os.path.lexists(
            f"{path}/{state_file.NAMES[0]}"
        ):  # written after `running`: without it, the job is just beginning
            ended.add(name)
    return found


def names(parent: Path) -> list[str]:
    """The names of the folders of jobs, oldest first."""
    return sorted(filter(_is_name, _listed(parent)))


def _listed(parent: Path) -> list[str]:
    try:
        return os.listdir(parent)
    except OSError:
        return []


@functools.lru_cache(maxsize=4096)  # each launch reads the folder, which has a thousand
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def find(job_id: str | None, origin: str) -> Record:
    """The job whose ID begins with `job_id`; without one, the last from `origin`, or of all if none is from there.

    One that runs comes before those that have ended, which their notebook shows already.

    Raises:
        ConfigurationError: There is none, or more than one.
    """
    if not isinstance(job_id, str | None):
        raise ConfigurationError(f"a job's ID is a string: write {str(job_id)!r} instead of {job_id!r}")
    every = all_records()
    if not every:
        raise ConfigurationError(f"no job has been launched yet, according to {folder()}")
    if job_id is None:
        own = [record for record in every if origin and _origin(record) == origin] or every
        return next((record for record in reversed(own) if record.is_running()), own[-1])
    matches = [record for record in every if record.id.startswith(job_id)] if job_id else []
    if len(matches) != 1:
        known = ", ".join(record.id for record in reversed(every[-5:]))
        number = "several jobs begin" if matches else "no job begins"
        raise ConfigurationError(
            f"{number} with {job_id!r}; the last are {known}. "
            "notebook_accel.jobs(), or notebook-accel jobs in a shell, lists more"
        )
    return matches[0]


def _origin(record: Record) -> str:
    try:
        return record.head().origin
    except JobLostError:
        return ""


def read_pickles(path: Path, what: str) -> bytes:
    """Reads a file of a job's folder, for its pickles to be unpickled.

    Args:
        path: The file.
        what: What is in it, as messages say it: `its results`.

    Raises:
        FileNotFoundError: There is none.
        JobLostError: It can't be read, or another user may have written it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise JobLostError(f"{what} can't be read: {error}") from error
    for each in (path.parent.parent, path.parent, path):
        if not _is_private(each):
            raise JobLostError(
                f"{what} won't be unpickled, because other users may have written to {each}: a pickle can run any code"
            )
    return data


def _is_private(path: Path) -> bool:
    """Whether only this user can have written it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return is_written_by_us(status) and not path.is_symlink()
