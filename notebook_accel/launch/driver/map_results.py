"""The values of a map: in memory, or in a file that survives the process; each once, by the index of its item.

The file is a sequence of records, each written by one call. The last one may be torn by a crash, and is then dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import tempfile
import zlib
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from notebook_accel.errors import CheckpointError, ConfigurationError
from notebook_accel.launch.journal.private_files import is_written_by_us, open_private, write_all

NAME = "map-results"
MAGIC = b"notebook-accel map 1\n"
"""How the file begins."""
RECORD = struct.Struct("<QQQI")
"""The index of an item, its digest, the length of the value, and the checksum of these and of the value."""
_READ = 2**20


class _Place(NamedTuple):
    """Where a value is in the file."""

    start: int
    length: int
    digest: int


def digest_of(name: bytes) -> int:
    """Tells items apart, so that a value is not taken for that of another item."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little")


class MapResults:
    """The values so far, pickled.

    Args:
        folder: Where to keep them; `None` for memory, or for a folder of the map's own.
        output: The file that they are written to in the end. Without a folder, they are kept in a new one beside it
            until then, so that none is lost if that fails; `None` for memory.

    Raises:
        ConfigurationError: Another map writes there, or it is not a folder.
        CheckpointError: What is there can't be read, or may be of another user.
    """

    def __init__(self, folder: Path | None, output: Path | None = None) -> None:
        self.is_own = folder is None and output is not None
        """Whether the folder is the map's own."""
        self.is_needed = True
        """Whether the values are nowhere else."""
        self.folder = _beside(output) if folder is None and output is not None else folder
        self.stale = 0
        """How many values there are of other items than those that now have their index."""
        self._values: dict[int, bytes] = {}
        self._places: dict[int, _Place] = {}
        self._fd = -1
        if self.folder is not None:
            self._open(self.folder)

    def __len__(self) -> int:
        return len(self._values) + len(self._places)

    def has(self, index: int, digest: int) -> bool:
        """Whether the value of this item is there. One of another item with its index is forgotten."""
        place = self._places.get(index)
        if place is None:
            return index in self._values
        if place.digest != digest:
            del self._places[index]
            self.stale += 1
            return False
        return True

    def add(self, index: int, digest: int, value: bytes) -> None:
        """Adds a value.

        Raises:
            CheckpointError: It can't be written.
        """
        if self._fd < 0:
            self._values[index] = value
            return
        head = RECORD.pack(index, digest, len(value), _checksum(index, digest, value))
        start = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            write_all(self._fd, head + value)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise CheckpointError(f"a value of the map can't be written to {self.folder}: {error}") from error
        self._places[index] = _Place(start + RECORD.size, len(value), digest)

    def get(self, index: int) -> bytes | None:
        """The value of the item with this index; `None` if there is none.

        Raises:
            CheckpointError: It can't be read.
        """
        place = self._places.get(index)
        if place is None:
            return self._values.get(index)
        found = os.pread(self._fd, place.length, place.start)
        if len(found) < place.length:
            raise CheckpointError(f"{self.folder}/{NAME} has become shorter while the map used it")
        return found

    def close(self) -> None:
        """Closes the file, which others may then use, and removes a folder of the map's own that is not needed."""
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        if self.is_own and self.folder is not None and not (self.is_needed and len(self)):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _open(self, folder: Path) -> None:
        path = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise ConfigurationError(f"checkpoint={str(folder)!r} can't be used: {error}") from error
        try:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigurationError(
                    f"another map_on_ranks saves to {folder} now: wait for it, end it, or choose another folder"
                ) from None
            except OSError:  # a file system without locks
                pass
            if not is_written_by_us(os.fstat(self._fd)):
                raise CheckpointError(
                    f"{path} won't be read, because other users may have written to it, and its values are pickles, "
                    "which can run any code"
                )
            os.ftruncate(self._fd, self._read())
        except BaseException:
            self.close()
            raise

    def _read(self) -> int:
        """Finds the values in the file; returns where the last whole record ends."""
        with open(self._fd, "rb", buffering=_READ, closefd=False) as file:
            file.seek(0)
            magic = file.read(len(MAGIC))
            if not MAGIC.startswith(magic):
                raise CheckpointError(f"{self.folder}/{NAME} is not a file of map_on_ranks: choose another folder")
            if magic != MAGIC:
                os.ftruncate(self._fd, 0)
                os.lseek(self._fd, 0, os.SEEK_SET)
                write_all(self._fd, MAGIC)
                return len(MAGIC)
            end = len(MAGIC)
            while len(head := file.read(RECORD.size)) == RECORD.size:
                index, digest, length, checksum = RECORD.unpack(head)
                value = file.read(length)
                if len(value) < length or _checksum(index, digest, value) != checksum:
                    break
                self._places[index] = _Place(end + RECORD.size, length, digest)
                end += RECORD.size + length
            return end


def _beside(output: Path) -> Path:
    """Makes a folder for the values that a file will have."""
    try:
        return Path(tempfile.mkdtemp(prefix=f"{output.name}.values-", dir=output.parent))
    except OSError as error:
        raise ConfigurationError(f"output={str(output)!r} can't be written: {error}") from error


def _checksum(index: int, digest: int, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(b"%d %d" % (index, digest)))
