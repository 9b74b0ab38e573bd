"""What is needed to launch a job again in another kernel: the pickled call, and the settings of the launch.

Only a job that saves checkpoints has this file, in its folder, until it is done. It has the format of a message on a
socket. Nothing of it is unpickled unless only this user can have written it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.config import LaunchConfig
from notebook_accel.errors import JobLostError
from notebook_accel.launch.journal.private_files import open_private
from notebook_accel.launch.journal.records import Record, read_pickles
from notebook_accel.launch.wire.stream import Decoder, encode

FORMAT = 2
"""The version of the file format; a change that older readers would misread increments it."""
MOST_BYTES = 64 * 2**20
"""A larger call is not stored."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class SavedLaunch:
    """A launch, as it was made."""

    config: LaunchConfig
    checkpoint_dir: str
    """The absolute path of the folder of its checkpoints."""
    name: str
    mode: str
    """How it was made: a constant of `launcher.py`."""
    function: str
    """The qualified name of its function in the notebook; empty if it has none, as a partial does."""
    definitions: Mapping[str, str]
    """The source of the notebook's functions and classes that the call contains, by name, where it is known."""
    folder: str
    """The working directory."""
    parts: Sequence[bytes] = ()
    """Those of the payload; none if it is too large."""
    arguments: Sequence[bytes] = ()
    """The arguments alone: a pickle of them and of the definitions that they need, and its out-of-band buffers."""
    rules: Sequence[bytes] = ()
    """As `rules.pack` returns them."""
    python: str = PYTHON
    """The version of Python that pickled the call."""

    def write(self, path: Path) -> None:
        """Writes the file.

        Raises:
            OSError: It can't be written.
        """
        header = {
            "format": FORMAT,
            "checkpoint_dir": self.checkpoint_dir,
            "name": self.name,
            "mode": self.mode,
            "function": self.function,
            "definitions": dict(self.definitions),
            "folder": self.folder,
            "python": self.python,
            "arguments": len(self.arguments),
            "rules": len(self.rules),
        }
        blobs = [pickle.dumps(self.config), *self.arguments, *self.rules, *self.parts]
        with open(path, "xb", opener=open_private) as file:
            file.write(encode(header, blobs))
            for blob in blobs:
                file.write(blob)


def read(record: Record) -> SavedLaunch:
    """Reads the file of a job.

    Raises:
        JobLostError: There is none, another user may have written it, or it is damaged or of another version.
    """
    try:
        data = read_pickles(record.saved_launch, "its function")
    except FileNotFoundError:
        raise JobLostError(
            "its function is not stored: it was too large, ran in the kernel itself, or could not be written"
        ) from None
    try:
        ((header, blobs),) = Decoder().feed(data)
        if (found := header.pop("format")) != FORMAT:
            raise JobLostError(f"its function was stored by another version of notebook_accel: {found!r}, not {FORMAT}")
        config, *rest = map(bytes, blobs)
        arguments = header.pop("arguments")
        rules = arguments + header.pop("rules")
        return SavedLaunch(
            config=pickle.loads(config),
            arguments=rest[:arguments],
            rules=rest[arguments:rules],
            parts=rest[rules:],
            **header,
        )
    except JobLostError:
        raise
    except Exception as error:  # unpickling raises anything
        raise JobLostError(f"its stored function is damaged ({type(error).__name__}: {error})") from error
