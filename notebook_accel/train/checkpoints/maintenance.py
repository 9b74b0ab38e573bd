"""Lists, checks and removes automatic checkpoints, while no training has them open. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.errors import CheckpointError, ConfigurationError
from notebook_accel.train.checkpoints import folders, manifest
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.remote_path import AnyPath, RemotePath


@dataclass(frozen=True)
class Listed:
    """One checkpoint."""

    path: AnyPath
    place: Place | None
    """`None` if its manifest cannot be read."""
    saved: float
    """When its manifest was written, in seconds since the epoch."""
    size: int
    """The bytes of its files."""
    problem: str
    """Why training cannot continue from it; empty if it can, as far as was checked."""


def find(folder: AnyPath) -> list[AnyPath]:
    """The automatic checkpoints in a folder, by step; or the folder itself, if it is one.

    Others, which `save_state` wrote, have no manifest and are left out.

    Raises:
        ConfigurationError: There is no such folder.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}")
    if (folder / manifest.NAME).is_file():
        return [folder]
    return folders.automatic(folder)


def inspect(path: AnyPath, *, checksums: bool = False) -> Listed:
    """Describes a checkpoint.

    Args:
        path: Its folder.
        checksums: Whether to read all of its files, rather than only compare their sizes.
    """
    problem, place, saved, size = "", None, 0.0, 0
    try:
        saved = (path / manifest.NAME).stat().st_mtime
        size = _size(path)
        place = manifest.place(path)
        manifest.verify(path, checksums=checksums)
    except (CheckpointError, OSError) as error:  # a training run may have removed it
        problem = str(error)
    return Listed(path, place, saved, size, problem)


def newest_whole(folder: AnyPath) -> AnyPath:
    """The newest checkpoint whose files have their checksums.

    Raises:
        CheckpointError: There is none.
        ConfigurationError: There is no such folder.
    """
    return _split(folder, 1)[0][0]


def prune(folder: AnyPath, keep: int, *, dry_run: bool = False) -> tuple[Sequence[AnyPath], Sequence[AnyPath]]:
    """Removes all automatic checkpoints but the newest ones whose files have their checksums.

    Args:
        folder: The folder of the checkpoints.
        keep: How many are kept.
        dry_run: Whether to remove nothing.

    Returns:
        Those that are kept, and those that are removed; the newest first.

    Raises:
        CheckpointError: None of them is whole; then nothing is removed.
        ConfigurationError: There is no such folder, or it is a checkpoint itself.
    """
    if (folder / manifest.NAME).is_file():
        raise ConfigurationError(f"{folder} is a checkpoint: give the folder that contains it")
    kept, others = _split(folder, keep)
    for path in [] if dry_run else others:
        folders.remove(path)
    return kept, others


def _split(folder: AnyPath, keep: int) -> tuple[list[AnyPath], list[AnyPath]]:
    """The newest `keep` checkpoints that are whole, and all others."""
    kept: list[AnyPath] = []
    others: list[AnyPath] = []
    problem = "none has been saved yet"
    for path in reversed(find(folder)):
        if len(kept) < keep:
            problem = inspect(path, checksums=True).problem
            (others if problem else kept).append(path)
        else:
            others.append(path)
    if not kept:
        raise CheckpointError(f"{folder} has no complete checkpoint: {problem}")
    return kept, others


def _size(path: AnyPath) -> int:
    if isinstance(path, RemotePath):
        return sum(path.sizes().values())
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
