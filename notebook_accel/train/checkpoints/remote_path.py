"""A path in a remote file system, with the methods of `pathlib.Path` that checkpoints need. Needs no torch."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from notebook_accel.config import remote_folders
from notebook_accel.errors import CheckpointError, ConfigurationError

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""Where file systems say when a file was written."""


@dataclass(frozen=True)
class Stat:
    """What is known of a file; the names are those of `os.stat_result`."""

    st_size: int
    st_mtime: float
    """Seconds since the epoch; 0 if the store does not say."""


class RemotePath:
    """A file or folder of a remote file system.

    Args:
        address: `protocol://path`, as users write it.
        fs: The file system of fsspec, if it is open.

    Raises:
        ConfigurationError: The file system can't be opened.
    """

    def __init__(self, address: str, fs: Any = None) -> None:
        self._address = address.rstrip("/")
        self._fs = _open(self._address) if fs is None else fs
        self._path: str = self._fs._strip_protocol(self._address)

    def __str__(self) -> str:
        return self._address

    def __repr__(self) -> str:
        return f"RemotePath({self._address!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(f"{self._address}/{name}", self._fs)

    @property
    def name(self) -> str:
        return self._address.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self._address.rpartition("/")[0], self._fs)

    def is_dir(self) -> bool:
        return self._type() == "directory"

    def is_file(self) -> bool:
        return self._type() == "file"

    def _type(self) -> str:
        """What is there; empty if nothing is. Unlike fsspec's `isdir`, it raises what keeps it from looking."""
        self._fs.invalidate_cache()  # other processes write there
        try:
            return str(self._fs.info(self._path)["type"])
        except FileNotFoundError:
            return ""

    def stat(self) -> Stat:
        info = self._fs.info(self._path)
        return Stat(int(info.get("size") or 0), _timestamp(info))

    def iterdir(self) -> Iterator[RemotePath]:
        """What is directly in the folder."""
        self._fs.invalidate_cache()
        for path in self._fs.ls(self._path, detail=False):
            if path.rstrip("/") != self._path:  # object stores may have an empty object in place of the folder
                yield self / path.rstrip("/").rpartition("/")[2]

    def sizes(self) -> dict[str, int]:
        """The bytes of all files below the folder, by their paths in it."""
        self._fs.invalidate_cache()
        found = self._fs.find(self._path, detail=True)
        prefix = f"{self._path}/"
        return {path.removeprefix(prefix): int(info.get("size") or 0) for path, info in found.items()}

    def open(self, mode: str) -> IO[bytes]:
        file: IO[bytes] = self._fs.open(self._path, mode)
        return file

    def read_text(self, encoding: str) -> str:
        text: bytes = self._fs.cat_file(self._path)
        return text.decode(encoding)

    def write_text(self, text: str, encoding: str) -> None:
        self._write(lambda: self._fs.pipe_file(self._path, text.encode(encoding)))

    def upload(self, source: Path) -> None:
        """Writes the content of a local file to this one."""
        self._write(lambda: self._fs.put_file(os.fspath(source), self._path))

    def _write(self, write: Callable[[], object]) -> None:
        """Writes this file, in a new folder if there is none yet."""
        try:
            write()
        except FileNotFoundError:
            # An object store has no folders, so its bucket is missing. For a folder, s3fs would create the bucket.
            if not self._fs.exists(self._root()):
                raise
            self._fs.makedirs(self.parent._path, exist_ok=True)
            write()

    def _root(self) -> str:
        """The bucket, or the first folder of the path."""
        first = self._path.lstrip("/").partition("/")[0]
        return "/" if self._path.startswith("/") else first

    def download(self, target: Path) -> None:
        """Writes the content of this file to a local one."""
        target.parent.mkdir(parents=True, exist_ok=True)
        self._fs.get_file(self._path, os.fspath(target))

    def download_all(self, target: Path) -> None:
        """Writes all files of this folder to a local one."""
        for name in self.sizes():
            if any(part in ("", ".", "..") for part in name.split("/")):  # object stores allow any name
                raise CheckpointError(f"{self} must not have a file {name!r}")
            (self / name).download(target / name)

    def remove_file(self) -> None:
        """Removes this file."""
        self._fs.rm_file(self._path)

    def remove(self, first: str) -> None:
        """Removes a folder, if it is there, beginning with one of its files."""
        self._fs.invalidate_cache()
        files = self._fs.find(self._path)
        marker = (self / first)._path
        for doomed in ([each for each in files if each == marker], [each for each in files if each != marker]):
            if doomed:
                self._fs.rm(doomed)
        self._fs.invalidate_cache()
        if self._fs.isdir(self._path):
            self._fs.rm(self._path, recursive=True)


AnyPath = Path | RemotePath


def parse(folder: str | os.PathLike[str]) -> AnyPath:
    """The folder that a user names: a path, or an address.

    Raises:
        ConfigurationError: The address can't be used.
    """
    text = os.fspath(folder)
    if remote_folders.is_remote(text):
        text = remote_folders.check("folder", text)
    return RemotePath(text) if remote_folders.is_remote(text) else Path(text)


def _open(address: str) -> Any:
    import fsspec

    try:
        return fsspec.core.url_to_fs(address)[0]
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{address} can't be opened: {error}") from error


def _timestamp(info: dict[str, Any]) -> float:
    found = next((info[name] for name in _TIMES if info.get(name)), 0.0)
    if isinstance(found, str):
        with contextlib.suppress(ValueError):
            found = datetime.datetime.fromisoformat(found)
    if isinstance(found, datetime.datetime):
        return found.timestamp()
    return float(found) if isinstance(found, (int, float)) else 0.0
