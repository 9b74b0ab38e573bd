"""Creates folders atomically, and names and counts checkpoints.

A checkpoint is written to a hidden folder beside its target, and renamed when every file of it is on the disk:

    checkpoints/.checkpoint_3.unfinished/checkpoint_3   while it is written; after a crash, the next save removes it
    checkpoints/checkpoint_3                            from then on
    checkpoints/.checkpoint_3.previous                  the replaced checkpoint, between the two renames
    checkpoints/.checkpoint_3.rank1/checkpoint_3        what a rank adds to it, until it is there
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from notebook_accel.errors import ConfigurationError
from notebook_accel.train.checkpoints import manifest
from notebook_accel.train.checkpoints.manifest import Place
from notebook_accel.train.checkpoints.remote_path import AnyPath, RemotePath

P = TypeVar("P", bound=AnyPath)
_CHECKPOINT = re.compile(r"checkpoint_(\d+)")
OWN_FILES = re.compile(
    r"(model|pytorch_model)(_\d+)?\.(safetensors|bin)"
    r"|(optimizer|scheduler|sampler|dl_state_dict)(_\d+)?(_rank\d+)?\.bin"
    r"|scaler\.pt|(random_states|custom_checkpoint)_\d+\.pkl|(gradients|buffers)(_\d+)?_rank\d+\.bin"
    r"|(pytorch_model_fsdp|optimizer)_\d+|checkpoint\.json"
)
"""The files of a checkpoint; any others in its folder belong to the user, and survive its replacement."""


class StagedFolder:
    """A folder that is being written, and that is hidden until `commit`.

    Args:
        target: The final path. An existing folder is replaced, but its files that no checkpoint writes are kept.
        what: What the hidden folder is called, beside the target's name.
        keep: How many numbered checkpoints there may be when it is complete; `None`: any number.
        place: Its place in the training, for its manifest. With it, only automatic checkpoints count.

    Raises:
        ConfigurationError: The existing folder can't be replaced in one step.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        what: str = "unfinished",
        *,
        keep: int | None = None,
        place: Place | None = None,
    ) -> None:
        self._keep, self._place = keep, place
        self.target = Path(target).expanduser().resolve()
        self._workplace = hidden(self.target, what)
        self.path = self._workplace / self.target.name
        """The folder while it is written. Its name is that of the target, which save hooks of users may read."""
        self._previous = hidden(self.target, "previous")
        self._refuse_unmovable()

    def begin(self) -> None:
        """Cleans up after a crash, so that the folder can be created."""
        recover(self.target)
        self.discard()

    def write(self, write: Callable[[Path], None]) -> str:
        """Has a function write this rank's files to the folder."""
        self.path.mkdir(parents=True, exist_ok=True)  # on a node with its own disk, the folder does not exist yet
        write(self.path)
        return ""

    def finish(self, written: Sequence[str]) -> None:
        """Makes the checkpoint complete on this disk, and removes those that are too old."""
        if self._place is not None and self.path.exists():  # on a shared disk, another node may have committed it
            manifest.write(self.path, self._place)
        self.commit()
        if self._keep is not None:
            remove_oldest(self.target.parent, self._keep, self.target, only_automatic=self._place is not None)

    def discard(self) -> None:
        """Removes the unfinished folder."""
        # Errors are ignored, since another node may do the same on a shared disk.
        shutil.rmtree(self._workplace, ignore_errors=True)

    def commit(self) -> None:
        """Renames the folder to its target, unless another node has done so on a shared disk."""
        if not self.path.exists():
            return
        if self.target.exists():
            _link_foreign_files(self.target, self.path)
        _flush(self.path)
        if self.target.exists():
            os.rename(self.target, self._previous)
        os.rename(self.path, self.target)
        self._keep_siblings()
        _flush_entry(self.target.parent)
        if self._previous.exists():
            shutil.rmtree(self._previous)

    def merge(self, last: str) -> bool:
        """Moves the files into the target, `last` after the others; returns whether it was there."""
        _flush(self.path)
        try:
            _move_all(self.path, self.target, last)
            _flush_entry(self.target)
        except FileNotFoundError:
            if self.target.exists():
                raise
            return False
        shutil.rmtree(self.path)
        self._keep_siblings()
        return True

    def _keep_siblings(self) -> None:
        """Moves what save hooks have written next to the folder, so that it is next to the target."""
        _move_all(self._workplace, self.target.parent)
        shutil.rmtree(self._workplace)

    def _refuse_unmovable(self) -> None:
        if self.target.is_file():
            raise ConfigurationError(f"{self.target} is a file: give a folder for the checkpoint")
        current = Path.cwd()
        if os.path.ismount(self.target) or self.target == current or self.target in current.parents:
            why = "is in use as the current directory" if not os.path.ismount(self.target) else "is a mount point"
            raise ConfigurationError(
                f"{self.target} {why}, so a checkpoint cannot replace it in one step: give a separate folder, "
                f"such as {self.target / 'checkpoint'}"
            )


def recover(target: Path) -> None:
    """Restores a folder whose replacement crashed between its two renames."""
    previous = hidden(target, "previous")
    if target.exists():
        shutil.rmtree(previous, ignore_errors=True)
    elif previous.exists():
        with contextlib.suppress(FileNotFoundError):  # another node may do the same on a shared disk
            os.rename(previous, target)


def tidy(folder: Path) -> None:
    """Removes what a crash has left of numbered checkpoints, and restores one whose replacement it cut off."""
    for path in folder.glob(".checkpoint_*.previous"):
        recover(path.with_name(path.name[1:].removesuffix(".previous")))
    for what in ("unfinished", "removed"):
        for path in folder.glob(f".checkpoint_*.{what}"):
            shutil.rmtree(path, ignore_errors=True)


def numbered(folder: P) -> list[tuple[int, P]]:
    """The numbered checkpoints in a folder, in order."""
    if not folder.is_dir():
        return []
    inside: list[Any] = list(folder.iterdir())
    return sorted((int(match[1]), path) for path in inside if (match := _CHECKPOINT.fullmatch(path.name)))


def automatic(folder: P) -> list[P]:
    """The automatic checkpoints in a folder, in order. Others, which `save_state` wrote, have no manifest."""
    return [path for _, path in numbered(folder) if (path / manifest.NAME).is_file()]


def remove_oldest(folder: P, keep: int, newest: P, *, only_automatic: bool = False) -> None:
    """Removes all but `keep` of the numbered checkpoints; `newest` is kept regardless of its number.

    With `only_automatic`, others neither count nor are removed.
    """
    found = automatic(folder) if only_automatic else [path for _, path in numbered(folder)]
    others = [path for path in found if path != newest]
    for path in others[: max(0, len(others) + 1 - keep)]:
        remove(path)


def remove(path: AnyPath) -> None:
    """Removes a checkpoint."""
    if isinstance(path, RemotePath):
        path.remove(manifest.NAME)
        return
    doomed = hidden(path, "removed")  # so that a crash midway leaves no partial checkpoint
    os.rename(path, doomed)
    shutil.rmtree(doomed)


def hidden(path: Path, what: str) -> Path:
    """The hidden name of a file or folder while it is being written, replaced or removed."""
    return path.with_name(f".{path.name}.{what}")


@contextlib.contextmanager
def staged_files(targets: Sequence[Path]) -> Iterator[None]:
    """Renames the hidden `unfinished` files, which the block writes, to the targets; removes them if it raises."""
    try:
        yield
    except BaseException:  # also an interrupt
        for target in targets:
            hidden(target, "unfinished").unlink(missing_ok=True)
        raise
    # All data is on the disk, so the rest is quick and cannot run out of space.
    for target in targets:
        os.replace(hidden(target, "unfinished"), target)


def _move_all(source: Path, target: Path, last: str = "") -> None:
    """Moves what a folder has into another, `last` after the others; folders of the same name are merged."""
    for path in sorted(source.iterdir(), key=lambda path: path.name == last):
        new = target / path.name
        if new.is_dir() and not new.is_symlink():
            shutil.copytree(path, new, dirs_exist_ok=True)
        else:
            os.replace(path, new)


def _link_foreign_files(source: Path, target: Path) -> None:
    """Hard-links the user's own files of the old folder into the new one, so that a file open for writing survives."""
    for path in source.iterdir():
        new = target / path.name
        if OWN_FILES.fullmatch(path.name) or new.exists():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, new, symlinks=True, copy_function=_link)
        else:
            _link(str(path), str(new))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(source, target, follow_symlinks=False)


def _flush(folder: Path) -> None:
    """Flushes everything in a folder to disk, so that a power failure cannot leave the name without its content."""
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root) / name
            if not path.is_symlink():
                _flush_entry(path)
        _flush_entry(Path(root))


def _flush_entry(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
