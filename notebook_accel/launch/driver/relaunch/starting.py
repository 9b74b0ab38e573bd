"""Launches a stored job again, with the code of then or with the notebook's."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from notebook_accel.config import remote_folders
from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.driver import launcher
from notebook_accel.launch.driver.stored_code import stored_call
from notebook_accel.launch.job.text import title
from notebook_accel.launch.journal.saved_launch import PYTHON, SavedLaunch
from notebook_accel.launch.wire import cell_names, payload, pickling, stack_frames
from notebook_accel.launch.wire.payload import Payload, WithArguments


def check(saved: SavedLaunch, *, current_code: bool) -> None:
    """Checks that a job can be launched again here.

    Raises:
        ConfigurationError: It can't, with this choice of code.
    """
    name = title(saved.name)
    if current_code and not saved.function:
        raise ConfigurationError(
            f"{name} was not launched as a named function of the notebook: to run it with the current code, "
            f"launch it again with checkpoint={saved.checkpoint_dir!r}"
        )
    if current_code and not callable(pickling.find(saved.function)):
        raise ConfigurationError(
            f"this notebook does not define {saved.function}: run its cell first, or choose --saved-code"
        )
    if not current_code and saved.python != PYTHON:
        raise ConfigurationError(
            f"{name} was stored by Python {saved.python}, whose code Python {PYTHON} can't run: define it here, and "
            "choose --current-code"
        )
    if not current_code and not os.path.isdir(saved.folder):
        raise ConfigurationError(
            f"{name} was launched in {saved.folder}, which no longer exists: create that folder, or choose "
            "--current-code"
        )
    is_elsewhere = bool(saved.config.cluster) or remote_folders.is_remote(saved.checkpoint_dir)
    if not is_elsewhere and not os.path.isdir(saved.checkpoint_dir):
        raise ConfigurationError(
            f"there is no folder {saved.checkpoint_dir} for the checkpoints of {name}. If it is on another disk, mount "
            "that first. If the job ended before its training began, launch it again"
        )


def start(saved: SavedLaunch, *, current_code: bool) -> Any:
    """Launches a job again, in the way in which it was launched.

    Returns:
        As `notebook_launcher`.

    Raises:
        NotebookAccelError: As `notebook_launcher`.
    """
    config = replace(saved.config, checkpoint_resume=True)
    if not config.cluster:
        config = replace(config, checkpoint_dir=saved.checkpoint_dir)
    prepared = launcher.prepare(config)
    if not current_code:
        packed = _stored_call(saved)
        return prepared.start(packed, saved.name, saved.mode, replace(saved, config=config))
    function = pickling.find(saved.function)
    packed = payload.pack(WithArguments(function, saved.arguments), (), {})
    again = stored_call.save(config, packed, function, saved.name, saved.mode, lambda: saved.arguments)
    return prepared.start(packed, saved.name, saved.mode, again)


def _stored_call(saved: SavedLaunch) -> Payload:
    packed = payload.from_parts([memoryview(part) for part in saved.parts])
    try:
        cells = payload.sources(packed)
    except Exception as error:
        packed.close()
        raise JobLostError(f"its stored function is damaged ({type(error).__name__}: {error})") from error
    # For tracebacks. The names of an earlier kernel's cells could be those of other cells in this one.
    earlier = {filename: cell for filename, cell in cells.items() if cell_names.name_of(filename) == filename}
    stack_frames.cache_cell_sources({filename: text for filename, (_, text) in earlier.items()})
    cell_names.add({filename: f"{name} of an earlier kernel" for filename, (name, _) in earlier.items()})
    return packed
