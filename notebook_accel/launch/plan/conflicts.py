"""Finds this user's jobs that run on the devices that a launch wants, to name them, or to wait for them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from notebook_accel.config import remote_folders
from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.events import JobStarted
from notebook_accel.hardware.cores import usable
from notebook_accel.launch.job.text import duration, title
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.state_file import StoredState
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.launch.show import console
from notebook_accel.owner import Owner
from notebook_accel.rank_spans import counted

GRACE = 2.0
"""Seconds in which a job that was just killed or cancelled has to end, before a launch into its folder is refused."""
_PAUSE = 0.05
_MOST = 3


@dataclass(frozen=True)
class _OtherJob:
    """A job that runs on this machine."""

    start: JobStarted
    is_own: bool
    """Whether this process runs it."""
    place: str
    """Where it was launched."""
    checkpoint_dir: str
    """The absolute path of the folder that it saves checkpoints to, if it does."""
    devices: frozenset[str]
    """Those that it uses, or that it may get if it waits."""
    is_waiting: bool
    """Whether it waits for its devices."""

    @property
    def called(self) -> str:
        return f"{self.start.title or title(self.start.name)} of {self.place}"

    def describe(self, name: str, devices: tuple[str, ...]) -> str:
        """The job in a line, and how to stop it, for a launch of the function `name` on `devices`."""
        started = self.start
        ran, stop = self._ran(), self._stop()
        if self.is_own and started.name == name:
            return f"{title(name)} of an earlier launch still runs here {ran}: {stop}"
        shared = sum(device in devices for device in self.devices)
        what = "the CPU" if "cpu" in devices else f"{shared} of these GPUs" if shared > 1 else "the same device"
        return f"{self.called} also runs on {what} {ran}: {stop}"

    def describe_folder(self) -> str:
        """As `describe`, for a launch that may save its checkpoints where the job does."""
        what = "each of the two may remove or continue those of the other"
        if not remote_folders.is_remote(self.checkpoint_dir):
            what = "a loop over Accelerator.epochs is refused here while it trains"
        return f"{self._describe_folder(what)}: {self._stop()}, or pass another folder as checkpoint="

    def refusal(self) -> str:
        """Why a launch can't save its checkpoints where the job does."""
        id = self.start.id
        what = "each of the two would remove or continue those of the other"
        return (
            f"{self._describe_folder(what)}. To watch it, call attach({id!r}); to end it first, "
            f"attach({id!r}).cancel() and wait(); to run both, pass another folder as checkpoint="
        )

    def _describe_folder(self, what: str) -> str:
        return (
            f"{self.called} runs {self._ran()}, and saves its checkpoints in the same folder, "
            f"{self.checkpoint_dir}, so that {what}"
        )

    def _ran(self) -> str:
        return f"on {counted(self.start.size)}, for {duration(time.time() - self.start.at)}"

    def _stop(self) -> str:
        return f"attach({self.start.id!r}).cancel() stops it"


def notice(planned: Plan, name: str, checkpoint_dir: str = "") -> str:
    """The jobs that a launch of the function `name` competes with, one per line; empty if there are none.

    Jobs on the CPU compete if there are more ranks than cores, and a job of the same name in this process is always
    named: its cell was probably run again. So is one that saves its checkpoints in `checkpoint_dir`, an absolute path,
    unless the launch is one of several that belong together. A launch that waits for its devices competes for nothing.

    Neither are the trials of one sweep named to each other, which are meant to run at once, nor the job whose rank
    launches: it waits for this launch.
    """
    wanted = planned.device_ids if planned.config.wait == "no" else ()
    running = [job for job in _running() if not planned.part_of or job.start.part_of != planned.part_of]
    is_whole = planned.size == planned.world_size
    rivals = [job for job in running if checkpoint_dir and job.checkpoint_dir == checkpoint_dir and is_whole]
    around = os.environ.get("NOTEBOOK_ACCEL_JOB")
    found = [job for job in running if job.devices.intersection(wanted) and job.start.id != around]
    if "cpu" in wanted and planned.size + sum(job.start.size for job in found) <= usable():
        found = [job for job in found if job.is_own and job.start.name == name]
    found = [job for job in found if job not in rivals]
    lines = [job.describe_folder() for job in rivals] + [job.describe(name, wanted) for job in found[:_MOST]]
    left = len(found) - _MOST
    return "\n".join([*lines, *([f"and {counted(left, 'other job')}: see jobs()"] if left > 0 else [])])


def refuse_shared_folder(planned: Plan, checkpoint_dir: str) -> None:
    """Refuses a launch that names the folder in which a job of this machine saves its checkpoints.

    A folder from another layer of the settings is that of every launch, also of one that doesn't train. There, only the
    loop that would save is refused, by the rank; see `train/checkpoints/folder_lock.py`.

    Raises:
        ConfigurationError: There is such a job.
    """
    if not checkpoint_dir or planned.config.cite("checkpoint_dir") or planned.size != planned.world_size:
        return
    deadline = time.monotonic() + GRACE
    while (job := next((each for each in _running() if each.checkpoint_dir == checkpoint_dir), None)) is not None:
        if time.monotonic() > deadline:
            raise ConfigurationError(job.refusal())
        time.sleep(_PAUSE)


def unnoticed(shown: str, id: str, checkpoint_dir: str) -> str:
    """The jobs that began to save their checkpoints in a folder while a launch was planned, one per line.

    Two launches that begin at once don't find each other until they are recorded. If each calls this after that, at
    least one of them finds the other.

    Args:
        shown: What `notice` returned.
        id: The launch's own ID.
        checkpoint_dir: The folder, as an absolute path.
    """
    found = [job for job in _running() if job.checkpoint_dir == checkpoint_dir and job.start.id != id]
    return "\n".join(job.describe_folder() for job in found if job.start.id not in shown)


def before(start: JobStarted) -> tuple[str, frozenset[str]]:
    """The jobs that a job which waits for its devices comes after, in a few words, and the devices that these have.

    Those that run on one of the devices, and those that wait for one of them and began earlier. If there are none, the
    text is empty.
    """
    place = start.at, start.id
    found = [
        job
        for job in _running()
        if job.start.id != start.id
        and job.devices.intersection(start.devices)
        and (not job.is_waiting or (job.start.at, job.start.id) < place)
    ]
    more = f" and {counted(len(found) - 1, 'other job')}" if len(found) > 1 else ""
    return f"{found[-1].called}{more}" if found else "", frozenset[str]().union(*(job.devices for job in found))


def _running() -> Iterator[_OtherJob]:
    """The jobs that processes of this machine run, newest first."""
    origin = console.current.origin()
    for record in reversed(records.unended_records()):
        try:
            if not record.is_running():
                continue
            stored = StoredState.read(record.path)
            start, end = stored.ends()
        except JobLostError:
            continue  # just removed, or of another version of this package
        head = stored.head
        if end is None and head.owner.is_local:
            is_own = head.owner == Owner.this()
            kind = "notebook" if head.origin else "process"
            is_here = head.origin == origin if head.origin else is_own
            place = f"{'this' if is_here else 'another'} {kind}"
            devices, is_waiting = frozenset(stored.devices), stored.awaits_devices
            start = Marks.of(record).on(start)
            yield _OtherJob(start, is_own, place, head.checkpoint_dir, devices, is_waiting)
