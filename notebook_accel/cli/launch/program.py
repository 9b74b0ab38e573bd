"""Finds the script, module, program or notebook that a launch runs, and refuses one that does not exist."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from notebook_accel.cli.launch.notebooks import Notebook
from notebook_accel.errors import ConfigurationError, closest


def program(target: str, arguments: Sequence[str], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the end of the launcher's command line, which says what to run and how.

    Raises:
        ConfigurationError: There is no such script, module, program or notebook.
    """
    if options.get("module"):
        _find_module(target)
        return ("--module", target, *arguments)
    if options.get("no_python"):
        if shutil.which(target) is None:
            raise ConfigurationError(f"there is no program {target}: give its path, or the name of a program on PATH")
        return ("--no-python", target, *arguments)
    _find_script(target)
    if Path(target).suffix == ".ipynb":
        how = _cells(Path(target), options)
        return ("--module", "notebook_accel.cli.launch.notebook_rank", json.dumps(how), target, *arguments)
    for name in ("cells", "output"):
        if options.get(name):
            raise ConfigurationError(f"--{name} has no effect on {target}: only notebooks (.ipynb) have cells")
    return (target, *arguments)


def name(target: str, *, is_module: bool) -> str:
    """What the panel calls it: `train.py`, `package/` or `-m package.train`."""
    path = Path(target).resolve()
    return f"-m {target}" if is_module else path.name + "/" * path.is_dir()


def _working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise ConfigurationError("the working folder has been deleted: change to another one") from None


def _find_script(target: str) -> None:
    path = Path(target)
    if path.is_dir():
        if (path / "__main__.py").is_file():
            return
        raise ConfigurationError(f"{target} is a folder without a __main__.py: give the script in it")
    if path.is_file():
        return
    others = [each.name for each in path.parent.glob("*") if each.suffix in (".py", ".ipynb")] if path.parent else []
    close = closest(path.name, others)
    hint = f" Did you mean {path.parent / close}?" if close else ""
    if not hint and "/" not in target and path.suffix not in (".py", ".ipynb"):
        hint = f" For a module write: -m {target}"
    raise ConfigurationError(f"there is no script {target} (looked in {_working_folder()}).{hint}")


def _find_module(name: str) -> None:
    first = name.partition(".")[0]
    if not first or not (PathFinder.find_spec(first, [_working_folder()]) or find_spec(first)):
        hint = " Give its name with dots, such as package.train." if "/" in name or name.endswith(".py") else ""
        raise ConfigurationError(f"there is no module {name} (looked in {_working_folder()} and on sys.path).{hint}")


def _cells(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    """The cells to run, and where to save the outputs. Reads the notebook once, to refuse an invalid one early."""
    cells = options.get("cells") or ()
    for each in cells:
        if not each.startswith("tag:") or each == "tag:":
            raise ConfigurationError(f"--cells {each}: write tag:NAME for the cells with that tag")
    tags = [each.removeprefix("tag:") for each in cells]
    Notebook(path).chosen(tags)
    output = options.get("output")
    if output and Path(output).is_dir():
        raise ConfigurationError(f"--output {output} is a folder: give the name of the notebook to write in it")
    if output and not os.access(Path(output).parent, os.W_OK):
        raise ConfigurationError(f"--output {output}: {Path(output).parent} is not a writable folder")
    return {"tags": tags, "output": output}
