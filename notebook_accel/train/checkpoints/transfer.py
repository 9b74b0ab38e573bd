"""Saves checkpoints to remote folders, and fetches the one to resume from. All ranks call these together.

Remote stores can't rename a folder. Each rank writes its files to a folder of its own on the local disk, and uploads
them from there. Rank 0 then writes `checkpoint.json`, with the checksums of all of them. Without it, a checkpoint does
not count, so it is also what is removed first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints import folders, seal
from notebook_accel.train.checkpoints.all_ranks import AllRanks
from notebook_accel.train.checkpoints.remote.path import RemotePath
from notebook_accel.train.checkpoints.seal import Place


def save(ranks: AllRanks, target: RemotePath, write: Callable[[Path], None], keep: int, place: Place) -> None:
    """Writes a checkpoint.

    Args:
        ranks: How the ranks wait for each other.
        target: Its folder.
        write: Writes this rank's files to the local folder that it is given.
        keep: How many checkpoints there may be then.
        place: Its place in the training.
    """
    ranks.run_on_first("prepare the folder", lambda: target.remove(seal.NAME))

    def upload() -> str:
        marks = {}
        with _own_folder(target.parent) as folder:
            write(folder)
            for name in seal.names(folder):
                marks[name] = seal.mark(folder / name)
                (target / name).upload(folder / name)
        return json.dumps(marks)

    def discard() -> None:
        with contextlib.suppress(Exception):  # the next launch removes it
            target.remove(seal.NAME)

    def finish() -> None:
        files = {name: mark for text in texts for name, mark in json.loads(text).items()}
        (target / seal.NAME).write_text(seal.text(place, files), encoding="utf-8")
        with contextlib.suppress(Exception):  # the next checkpoint removes them
            _remove_oldest(target.parent, keep, target)

    try:
        texts = ranks.collect("write the checkpoint", upload)
    except Exception:
        ranks.run_on_first("remove the unfinished checkpoint", discard)
        raise
    ranks.run_on_first("finish the checkpoint", finish)


def sealed(folder: RemotePath) -> list[str]:
    """The names of the checkpoints in a folder that are complete, in order. Removes the others, which a crash left.

    Raises:
        CheckpointError: The folder can't be read.
    """
    try:
        found = [path for _, path in folders.numbered(folder)]
        complete = [path.name for path in found if (path / seal.NAME).is_file()]
    except Exception as error:
        raise CheckpointError(
            f"{folder} can't be read ({type(error).__name__}: {error}): check its name, your credentials, and the "
            "network"
        ) from error
    for path in found:
        if path.name not in complete:
            with contextlib.suppress(Exception):  # it does not count, and the next launch tries again
                path.remove(seal.NAME)
    return complete


def fetch(checkpoint: RemotePath) -> None:
    """Downloads a checkpoint to this node's copy. What it lacks is found as the copy is verified."""
    folder = copy_of(checkpoint)
    shutil.rmtree(folder.parent, ignore_errors=True)
    _make_private(folder.parent)
    checkpoint.download_all(folder)


def copy_of(checkpoint: RemotePath) -> Path:
    """Where this node has its copy of a checkpoint."""
    return _scratch(checkpoint.parent) / "resumed" / checkpoint.name


def remove_copies(folder: RemotePath) -> None:
    """Removes what this node has of the checkpoints in a folder."""
    shutil.rmtree(_scratch(folder), ignore_errors=True)


@contextlib.contextmanager
def _own_folder(folder: RemotePath) -> Iterator[Path]:
    """A local folder for the files of this rank, which is removed afterwards."""
    scratch = _scratch(folder)
    _make_private(scratch)
    own = Path(tempfile.mkdtemp(dir=scratch))
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)
        with contextlib.suppress(OSError):  # others still use it
            scratch.rmdir()


def _scratch(folder: RemotePath) -> Path:
    """This user's local folder for a remote one, always the same, so that a launch tidies up after a crash."""
    return Path(tempfile.gettempdir()) / f"notebook-accel-{os.getuid()}-{zlib.crc32(str(folder).encode()):08x}"


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in (folder, folder.parent):
        if each != Path(tempfile.gettempdir()) and (each.is_symlink() or each.stat().st_uid != os.getuid()):
            raise CheckpointError(f"{each} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")


def _remove_oldest(folder: RemotePath, keep: int, newest: RemotePath) -> None:
    others = [path for _, path in folders.numbered(folder) if path != newest]
    for path in others[: max(0, len(others) + 1 - keep)]:
        path.remove(seal.NAME)
