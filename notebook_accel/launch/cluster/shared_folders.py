"""The notebook's folders on other nodes: its working directory, and the folders of its own modules.

A folder on a shared file system, which is the same on the other node, is used as it is. For any other folder, all files
are sent at first, and later those that have changed.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.launch.cluster.agent_launcher import ClusterError
from notebook_accel.launch.cluster.protocol import Frame

MOST_BYTES = 100 * 10**6
MOST_FILES = 5000
_LEFT_OUT = frozenset(
    (".git", ".hg", ".svn", "__pycache__", "node_modules", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".cache")
)
_ENVIRONMENT = "pyvenv.cfg"
_MARKER = ".notebook-accel-"
_BATCH = 8 * 2**20

Stamp = tuple[int, int, int]
"""A file's size, modification time and permissions."""


# On an agent's node


class Folders:
    """The locations of the notebook's folders on this node.

    Args:
        home: A folder for the folders that are sent.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._received: dict[str, str] = {}
        """The local path of each folder that is sent, by its path in the notebook."""
        self.paths: dict[str, str] = {}
        """The local path of each folder, by its path in the notebook."""

    def compare(self, requested: Mapping[str, str]) -> list[str]:
        """Returns the folders that this node does not share.

        Args:
            requested: For each folder, the name of a marker file that is in it now.
        """
        lacking = []
        for path, marker in requested.items():
            if marker and os.path.exists(os.path.join(path, marker)):
                self.paths[path] = path
                continue
            place = os.path.join(self._home, str(len(self._received)), os.path.basename(path) or "root")
            self.paths[path] = self._received.setdefault(path, place)
            os.makedirs(self.paths[path], exist_ok=True)
            lacking.append(path)
        return lacking

    def take(self, header: Mapping[str, Any], blobs: Sequence[Any]) -> None:
        """Writes changed files, and removes deleted ones."""
        place = self.paths[header["path"]]
        for name in header["gone"]:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(place, name))
        for (name, (_, changed, mode)), content in zip(header["files"], blobs, strict=True):
            path = os.path.join(place, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)
            os.utime(path, ns=(changed, changed))


# On the notebook's node


@dataclass
class SentFolders:
    """The state of the notebook's folders on one node."""

    shared: set[str] = field(default_factory=set)
    """Folders that the node shares."""
    sent: dict[str, dict[str, Stamp]] = field(default_factory=dict)
    """The files that were sent, by folder."""

    def unknown(self, folders: Sequence[str]) -> list[str]:
        """The folders for which it is not known whether the node shares them."""
        return [folder for folder in folders if folder not in self.shared and folder not in self.sent]

    def lacking(self, folders: Sequence[str]) -> list[str]:
        """The folders whose files must be sent to the node."""
        return [folder for folder in folders if folder not in self.shared]

    def add_answer(self, requested: Sequence[str], lacking: Sequence[str]) -> None:
        """Records the answer of a node: which of the requested folders it does not share."""
        self.shared.update(set(requested) - set(lacking))
        for folder in lacking:
            self.sent.setdefault(folder, {})

    def updates(self, folders: Sequence[str], scans: Mapping[str, Mapping[str, Stamp]]) -> Iterator[Frame]:
        """Makes the frames that bring the node up to date.

        Args:
            folders: The folders.
            scans: The current files of those that the node does not share.
        """
        for folder in self.lacking(folders):
            before, now = self.sent[folder], scans[folder]
            gone = [name for name in before if name not in now]
            yield from _frames(folder, {name: stamp for name, stamp in now.items() if before.get(name) != stamp}, gone)
            self.sent[folder] = dict(now)


def _frames(folder: str, changed: Mapping[str, Stamp], gone: Sequence[str]) -> Iterator[Frame]:
    files: list[tuple[str, Stamp]] = []
    blobs: list[bytes] = []
    for name, stamp in changed.items():
        with contextlib.suppress(OSError):  # it has just been deleted
            with open(os.path.join(folder, name), "rb") as file:
                blobs.append(file.read())
            files.append((name, stamp))
        if sum(map(len, blobs)) > _BATCH:
            yield {"op": "folder", "path": folder, "files": files, "gone": []}, blobs
            files, blobs = [], []
    if files or gone:
        yield {"op": "folder", "path": folder, "files": files, "gone": list(gone)}, blobs


@contextlib.contextmanager
def marked(folders: Sequence[str]) -> Iterator[dict[str, str]]:
    """Puts a unique marker file into each folder; yields the names, empty for a folder that is not writable."""
    with contextlib.ExitStack() as stack:
        found = {}
        for folder in folders:
            found[folder] = ""
            with contextlib.suppress(OSError):
                marker = stack.enter_context(tempfile.NamedTemporaryFile(prefix=_MARKER, dir=folder))
                found[folder] = os.path.basename(marker.name)
        yield found


def scan(folder: str) -> dict[str, Stamp]:
    """The files of a folder, without those that tools have put there.

    Raises:
        ClusterError: The folder is too large to be sent.
    """
    found: dict[str, Stamp] = {}
    total = 0
    for where, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each not in _LEFT_OUT and not _is_environment(where, each)]
        for name in names:
            path = os.path.join(where, name)
            with contextlib.suppress(OSError):
                stat = os.stat(path)
                if name.startswith(_MARKER) or not os.path.isfile(path):
                    continue
                found[os.path.relpath(path, folder)] = (stat.st_size, stat.st_mtime_ns, stat.st_mode & 0o777)
                total += stat.st_size
        if total > MOST_BYTES or len(found) > MOST_FILES:
            raise ClusterError(
                f"{folder} must be sent to the machines of the cluster, but contains more than {MOST_BYTES // 10**6} "
                f"MB or {MOST_FILES} files. Work in a folder that contains little but code, or in one on a file system "
                "that all machines share, which is used as it is, and keep data elsewhere."
            )
    return found


def _is_environment(where: str, name: str) -> bool:
    return os.path.exists(os.path.join(where, name, _ENVIRONMENT))
