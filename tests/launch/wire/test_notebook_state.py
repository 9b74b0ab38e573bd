"""What a rank takes on of the notebook's state; most of it is shown with real kernels."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from notebook_accel.launch.wire.mirrored import notebook_state


def add(folder: Path, name: str) -> None:
    """Adds a module to a folder within a tick of its last change, as far as the folder tells."""
    before = folder.stat()
    (folder / f"{name}.py").touch()
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("listed", ["before the forks", "since"])
def test_the_users_folders_are_listed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    name = f"module_{listed[:5]}".rstrip()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    for step in ("before the forks", "since"):
        if step == "since":
            notebook_state.remember_user_folders()
        if step == listed:
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)
    add(tmp_path, name)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)
    notebook_state.apply(notebook_state.capture_paths())
    importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
