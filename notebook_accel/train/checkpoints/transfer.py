"""Saves checkpoints to remote folders, and fetches the one to resume from. All ranks call these together.

Remote stores can't rename a folder. Each rank writes its files to a folder of its own on the local disk, and uploads
them from there. Rank 0 then writes `checkpoint.json`, with the checksums of all of them. Without it, a checkpoint does
not count, so it is also what is removed first. Until then `checkpoint.unfinished` tells the folder from others without
a manifest, such as those that `save_state` writes, which are never removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints import folders, manifest
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.remote_path import RemotePath

_PROBE = "notebook-accel.probe"
"""The name of a file that is written only to see whether that works."""


class UploadedFolder:
    """A checkpoint's remote folder that is being written.

    Args:
        target: The folder.
        keep: How many checkpoints there may be when it is complete.
        place: Its place in the training.
        is_first: Whether this is rank 0.
    """

    def __init__(self, target: RemotePath, keep: int, place: Place, *, is_first: bool) -> None:
        self._target, self._keep, self._place, self._is_first = target, keep, place, is_first

    def begin(self) -> None:
        """Removes an earlier checkpoint, and marks the folder as unfinished."""
        target = self._target
        if not self._is_first:
            return
        if not _is_ours(target) and target.is_dir():
            raise CheckpointError(
                f"{target} exists and is not an automatic checkpoint. Move it, or choose another folder for checkpoint="
            )
        folders.remove(target)
        (target / manifest.UNFINISHED).write_text("", encoding="utf-8")

    def write(self, write: Callable[[Path], None]) -> str:
        """Has a function write this rank's files to a local folder, and uploads them; returns their marks."""
        marks = {}
        with _own_folder(self._target.parent) as folder:
            write(folder)
            for name in manifest.names(folder):
                marks[name] = manifest.mark(folder / name)
                (self._target / name).upload(folder / name)
        return json.dumps(marks)

    def finish(self, written: Sequence[str]) -> None:
        """Writes the manifest, and removes checkpoints that are too old."""
        if not self._is_first:
            return
        files = {name: mark for text in written for name, mark in json.loads(text).items()}
        (self._target / manifest.NAME).write_text(manifest.text(self._place, files), encoding="utf-8")
        with contextlib.suppress(Exception):  # the next checkpoint removes them
            (self._target / manifest.UNFINISHED).remove_file()
            _remove_others(self._target.parent, self._keep, self._target)

    def discard(self) -> None:
        """Removes what was uploaded."""
        if self._is_first:
            with contextlib.suppress(Exception):  # the next save removes it
                folders.remove(self._target)


def automatic(folder: RemotePath) -> list[str]:
    """The names of the checkpoints in a folder that are complete, in order.

    Nothing is removed: a folder without a manifest may be one that `save_state` has written.

    Raises:
        CheckpointError: The folder can't be read.
    """
    try:
        return [path.name for path in folders.automatic(folder)]
    except Exception as error:
        raise _unusable(folder, "read", error) from error


def check_writable(folder: RemotePath) -> None:
    """Writes an empty file to a folder, and removes it: before the first step rather than at the first checkpoint.

    Raises:
        CheckpointError: Nothing can be written there, for example because there is no such bucket.
    """
    probe = folder / _PROBE
    try:
        probe.write_text("", encoding="utf-8")
    except Exception as error:
        raise _unusable(folder, "written to", error) from error
    with contextlib.suppress(Exception):  # another node has removed it, or this user may not remove anything
        probe.remove_file()


def fetch(checkpoint: RemotePath) -> None:
    """Downloads a checkpoint to this node's copy. What it lacks is found as the copy is verified."""
    folder = copy_of(checkpoint)
    _make_private(_scratch(checkpoint.parent))
    shutil.rmtree(folder.parent, ignore_errors=True)
    _make_private(folder.parent)
    checkpoint.download_all(folder)


def copy_of(checkpoint: RemotePath) -> Path:
    """Where this node has its copy of a checkpoint."""
    return _scratch(checkpoint.parent) / "resumed" / checkpoint.name


def remove_copies(folder: RemotePath) -> None:
    """Removes what this node has of the checkpoints in a folder."""
    scratch = _scratch(folder)
    shutil.rmtree(scratch / "resumed", ignore_errors=True)
    with contextlib.suppress(OSError):  # a thread may still upload from there
        scratch.rmdir()


@contextlib.contextmanager
def _own_folder(folder: RemotePath) -> Iterator[Path]:
    """A local folder for the files of this rank, which is removed afterwards."""
    scratch = _scratch(folder)
    own = None
    while own is None:
        _make_private(scratch)
        with contextlib.suppress(FileNotFoundError):  # another rank has just removed the empty folder
            own = Path(tempfile.mkdtemp(dir=scratch))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):  # others still use it
            scratch.rmdir()


def _scratch(folder: RemotePath) -> Path:
    """This node's folder for a remote one, always the same, so that a launch tidies up after a crash."""
    what = f"{platform.node()} {folder}"  # machines may share the folder for temporary files
    return Path(tempfile.gettempdir()) / f"notebook-accel-{os.getuid()}-{zlib.crc32(what.encode()):08x}"


def _make_private(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):  # a dangling link, which is refused below
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (folder, folder.parent):
        if each != Path(tempfile.gettempdir()) and (each.is_symlink() or each.stat().st_uid != os.getuid()):
            raise CheckpointError(f"{each} belongs to another user: remove it, or set TMPDIR to a folder of your own")


def _unusable(folder: RemotePath, what: str, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{folder} can't be {what} ({type(error).__name__}: {error}): check its name, your credentials, and the network"
    )


def _is_ours(checkpoint: RemotePath) -> bool:
    """Whether a folder is an automatic checkpoint, or the beginning of one."""
    return (checkpoint / manifest.NAME).is_file() or (checkpoint / manifest.UNFINISHED).is_file()


def _remove_others(folder: RemotePath, keep: int, newest: RemotePath) -> None:
    """Removes the oldest checkpoints, and what a crash has left of unfinished ones."""
    for _, path in folders.numbered(folder):
        if path != newest and (path / manifest.UNFINISHED).is_file() and not (path / manifest.NAME).is_file():
            folders.remove(path)
    folders.remove_oldest(folder, keep, newest, only_automatic=True)
