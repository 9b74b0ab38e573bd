"""The manifest of an automatic checkpoint: its place in the training, and the checksums of all its other files."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from notebook_accel.errors import CheckpointError
from notebook_accel.train.checkpoints.remote_path import AnyPath, RemotePath

NAME = "checkpoint.json"
UNFINISHED = "checkpoint.unfinished"
"""An empty file in a remote checkpoint that has no manifest yet, so that it is not taken for a folder of the user's."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Place:
    """A point of the training, as `Accelerator.epochs` counts."""

    epoch: int
    """The epoch that is not finished, from 0."""
    step: int
    """How many optimizer steps were done."""
    ranks: int
    """The number of ranks."""


def write(folder: Path, place: Place) -> None:
    """Writes the manifest of a checkpoint's folder, whose files are complete."""
    (folder / NAME).write_text(text(place, {name: mark(folder / name) for name in names(folder)}), encoding="utf-8")


def text(place: Place, files: Mapping[str, Sequence[int]]) -> str:
    """The content of a manifest.

    Args:
        place: The checkpoint's place in the training.
        files: The `mark` of each file.
    """
    content = {**asdict(place), "files": {name: list(each) for name, each in files.items()}}
    return json.dumps({**content, "checksum": _checksum(content)}, indent=1)


def verify(folder: AnyPath, *, checksums: bool = True) -> None:
    """Compares a checkpoint's files with their checksums.

    Args:
        folder: The checkpoint.
        checksums: With `False`, only the sizes of the files are compared, and they are not read.

    Raises:
        CheckpointError: A file is missing, or has other content, or the manifest is not readable.
    """
    files = _content(folder)["files"]
    for name in names(folder):
        try:
            # A file without a checksum is the user's own.
            is_same = name not in files or _matches(folder / name, files.pop(name), checksums)
        except OSError as error:
            raise CheckpointError(f"{folder / name} cannot be read: {error}") from error
        if not is_same:
            raise CheckpointError(f"{folder / name} has changed since it was saved: its checksum differs")
    if files:
        raise CheckpointError(f"{folder} lacks {', '.join(sorted(files))}")


def place(folder: AnyPath) -> Place:
    """The place of a checkpoint in the training.

    Raises:
        CheckpointError: The manifest is not readable.
    """
    content = _content(folder)
    return Place(content["epoch"], content["step"], content["ranks"])


def _content(folder: AnyPath) -> dict[str, Any]:
    path = folder / NAME
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("checksum") != _checksum(content):
            raise ValueError("its checksum differs")
        for name in ("epoch", "step", "ranks"):
            content[name] = int(content[name])
        content["files"] = {str(name): (int(mark[0]), int(mark[1])) for name, mark in content["files"].items()}
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no {NAME}") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return content


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def names(folder: AnyPath) -> Iterator[str]:
    """The files of a folder without its manifest, by their paths in it."""
    if isinstance(folder, RemotePath):
        yield from (name for name in folder.sizes() if name not in (NAME, UNFINISHED))
        return
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name).relative_to(folder)
            if str(path) != NAME:
                yield path.as_posix()


def _matches(path: AnyPath, expected: tuple[int, int], checksums: bool) -> bool:
    return mark(path) == expected if checksums else path.stat().st_size == expected[0]


def mark(path: AnyPath) -> tuple[int, int]:
    """The size of a file, and its checksum."""
    size, checksum = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
    return size, checksum
