"""Writes checkpoints on a thread while the training continues, and finds the one to resume from."""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from notebook_accel.errors import CheckpointError, ConfigurationError
from notebook_accel.events import saving
from notebook_accel.train.checkpoints import folder_lock, folders, manifest, transfer
from notebook_accel.train.checkpoints.all_ranks import AllRanks, Gather
from notebook_accel.train.checkpoints.checkpoint import Unfinished, save_folder
from notebook_accel.train.checkpoints.folders import P
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.parts import Part
from notebook_accel.train.checkpoints.remote_path import AnyPath, RemotePath
from notebook_accel.train.ranks import environment
from notebook_accel.train.ranks.collectives import all_objects
from notebook_accel.train.ranks.state import PartialState

LAST_GRACE = 20.0
"""Seconds for which a failing training run waits for the checkpoint that is being written."""
NOTICE_AFTER = 1.0
"""Seconds after which it says so."""


class BackgroundSaver:
    """Writes one checkpoint at a time; every method is for the thread of the training, the same on all ranks.

    Args:
        folder: The folder of the checkpoints.
        keep: How many of them are kept.
        gather: How the ranks exchange texts on that thread.
        newest: The checkpoint that the training continues from.
    """

    def __init__(self, folder: AnyPath, keep: int, gather: Gather, newest: AnyPath | None) -> None:
        self.folder = folder
        self.newest = newest
        """The last checkpoint that is whole, as far as this rank has seen."""
        self._keep = keep
        self._ranks = AllRanks(gather)
        self._thread: threading.Thread | None = None
        self._has_folder = not isinstance(folder, RemotePath) and folder.is_dir()
        """Whether there is a folder before the first checkpoint, as `prepare` makes it on a local disk."""

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is still being written."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, parts: Sequence[Part], place: Place, then: Callable[[str, str], object]) -> None:
        """Begins to write a checkpoint, after `wait` for the previous one.

        Args:
            parts: Copies of its parts.
            place: Where the training is.
            then: Called with its path and an error, one of which is empty, on the thread that writes it.
        """
        # Not a daemon: a process that ends because its training is over waits for it.
        self._thread = threading.Thread(target=self._write, args=(parts, place, then), name="checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Waits until the checkpoint is written, or it has been reported that it could not be."""
        if self._thread is not None:
            with saving():
                self._thread.join()
            self._thread = None

    def wait_briefly(self) -> None:
        """Waits `LAST_GRACE` seconds for it at most, because the training has failed, or the loop was left.

        The other ranks are ended once the failure of one is known, so it waits before that. Where another rank is gone,
        the checkpoint cannot be completed, which its thread finds out within seconds.
        """
        if self._thread is None:
            return
        self._thread.join(NOTICE_AFTER)
        if self.is_busy:
            report(f"training has ended early; waiting up to {LAST_GRACE:g} s for the checkpoint that is being written")
            self._thread.join(LAST_GRACE - NOTICE_AFTER)

    def _write(self, parts: Sequence[Part], place: Place, then: Callable[[str, str], object]) -> None:
        target = self.folder / name(place.step)

        def write(folder: Path) -> None:
            for part in parts:
                part.write(folder)

        self._report_removal()
        try:
            save_folder(self._ranks, lambda: self._unfinished(target, place), write)
        except Exception as error:
            last = "there is none yet" if self.newest is None else f"the last one is {self.newest}"
            report(
                f"the checkpoint after step {place.step} could not be written ({type(error).__name__}: {error}). "
                f"Training continues; {last}"
            )
            then("", f"the checkpoint could not be written ({type(error).__name__}: {error})")
        else:
            self.newest = target
            then(str(target), "")

    def _unfinished(self, target: AnyPath, place: Place) -> Unfinished:
        if isinstance(target, RemotePath):
            return transfer.UploadedFolder(target, self._keep, place, is_first=self._ranks.is_first)
        return folders.StagedFolder(target, keep=self._keep, place=place)

    def _report_removal(self) -> None:
        """Warns if somebody has removed the last checkpoint, or the folder: the next one makes the folder again."""
        expected = self.folder if self.newest is None else self.newest
        if not self._ranks.is_first or (self.newest is None and not self._has_folder):
            return
        with contextlib.suppress(Exception):  # whatever keeps it from being read is reported when the next is written
            if not expected.is_dir():
                report(
                    f"WARNING: {expected} no longer exists: it was removed, or its disk was unmounted, while the "
                    f"training runs. The next checkpoint is saved to a new {self.folder}"
                )


def name(step: int) -> str:
    """The name of the checkpoint after `step` steps."""
    return f"checkpoint_{step}"


def prepare(folder: AnyPath) -> None:
    """Makes sure that checkpoints can be saved to a folder. All ranks call it.

    A local folder is made, so that a process that resumes the job sees that it isn't unmounted. If that fails, a
    warning says so.

    Raises:
        ConfigurationError: The path is that of a file.
        CheckpointError: A remote folder can't be written to.
    """
    if isinstance(folder, RemotePath):
        AllRanks().run_on_each_node("check the folder of the checkpoints", lambda: transfer.check_writable(folder))
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigurationError(f"checkpoints can't be saved to {folder}: {error.strerror}. Name a folder") from None
    except OSError as error:
        report(f"WARNING: checkpoints cannot be written to {folder} now, so nothing can be resumed: {error}")


def hold(folder: AnyPath, job: str) -> contextlib.ExitStack:
    """Makes rank 0 lock a folder for a training run, unless it is a remote folder. All ranks call it.

    Args:
        folder: The folder.
        job: The ID of the launch's job.

    Returns:
        What releases the folder when it is closed.

    Raises:
        ConfigurationError: Another training saves to the folder.
        CheckpointError: The same, on the ranks other than 0.
    """
    stack = contextlib.ExitStack()
    if isinstance(folder, RemotePath):
        return stack
    is_main = PartialState().is_main_process
    lock = AllRanks().run("save its checkpoints", lambda: folder_lock.acquire(folder, job, report) if is_main else None)
    if lock is not None:
        stack.callback(lock.release)
    return stack


def release(folder: AnyPath, hold: contextlib.ExitStack) -> None:
    """Releases a folder at the end of a training run; all ranks call it, and none sees the lock's file afterwards."""
    if not isinstance(folder, RemotePath):
        AllRanks().run("release the folder of the checkpoints", hold.close)


def newest(folder: AnyPath) -> AnyPath | None:
    """The newest checkpoint that is whole on every rank's disk, or `None`; all ranks call it.

    If one has other content than was saved, this is reported, and the previous one is used.
    """
    if isinstance(folder, RemotePath):
        return _newest_remote(folder)
    ranks = AllRanks()
    ranks.run_on_each_node("tidy the folder of the checkpoints", lambda: folders.tidy(folder))
    here = [path.name for _, path in folders.numbered(folder)]
    found = all_objects(here)
    common = reversed([folder / each for each in here if all(each in names for names in found)])
    return _first_intact(ranks, folder, common, manifest.verify)


def _newest_remote(folder: RemotePath) -> RemotePath | None:
    """Like `newest`; each node has downloaded the checkpoint then."""
    ranks = AllRanks()
    ranks.run_on_each_node("remove old copies", lambda: transfer.remove_copies(folder))
    here = ranks.run(f"list {folder}", lambda: transfer.automatic(folder) if ranks.is_first else [])
    names = all_objects(here)[0]

    def downloaded() -> Iterator[RemotePath]:
        for path in reversed([folder / each for each in names]):
            ranks.run_on_each_node(f"download {path}", functools.partial(transfer.fetch, path))
            yield path

    return _first_intact(ranks, folder, downloaded(), lambda path: manifest.verify(transfer.copy_of(path)))


def _first_intact(ranks: AllRanks, folder: AnyPath, paths: Iterable[P], verify: Callable[[P], None]) -> P | None:
    """The first of these checkpoints that is intact on every node, or `None`.

    Raises:
        CheckpointError: None is, and one can't be read at all: a training run that started over would replace it.
    """
    failures: list[CheckpointError] = []
    for path in paths:
        try:
            ranks.run_on_each_node(f"read {path}", functools.partial(verify, path))
        except CheckpointError as error:
            failures.append(error)
            report(f"WARNING: {path.name} is damaged, so the checkpoint before it is used, if there is one: {error}")
        else:
            return path
    if failures:
        ranks.run(f"read the checkpoints in {folder}", lambda: _refuse_unreadable(folder, failures))
        report(
            f"WARNING: no checkpoint in {folder} is intact, so the training starts from the beginning, and its "
            "checkpoints replace these. To keep them, interrupt it now, and move them elsewhere"
        )
    return None


def _refuse_unreadable(folder: AnyPath, failures: Iterable[CheckpointError]) -> None:
    """Refuses to start over where this rank could not read a file, which may be as it should."""
    for error in failures:
        if isinstance(error.__cause__, OSError):
            raise CheckpointError(
                f"no checkpoint in {folder} is intact, but this may only be a matter of access: {error}. Make the "
                "files readable, or pass another folder as checkpoint= to train from the beginning"
            ) from error


def local_copy(checkpoint: AnyPath) -> Path:
    """The folder of this node that has the files of the newest checkpoint."""
    return transfer.copy_of(checkpoint) if isinstance(checkpoint, RemotePath) else checkpoint


def remove_copies(folder: AnyPath) -> None:
    """Removes local copies of remote checkpoints."""
    if isinstance(folder, RemotePath) and PartialState().is_local_main_process:
        transfer.remove_copies(folder)


def report(text: str) -> None:
    """Shows a line to the user, once for all ranks."""
    if environment.read().rank == 0:
        print(f"notebook-accel: {text}", file=sys.stderr, flush=True)  # noqa: T201  # that is what it is for
