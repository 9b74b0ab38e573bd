"""Launches a function or a cell of the notebook for an agent: `jupyter/mcp.py` has the kernel call `start`."""

from __future__ import annotations

import json
import time
from types import FunctionType
from typing import TYPE_CHECKING, Any

from IPython.core.getipython import get_ipython

from notebook_accel.errors import ConfigurationError, NotebookAccelError, did_you_mean
from notebook_accel.launch.driver.launcher import notebook_launcher
from notebook_accel.notebook.cells.cell_function import as_function

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def start(request: str) -> str:
    """Launches a function or a cell, detached.

    Args:
        request: JSON: the name of the `function`, or the text of the `cell`; its `arguments`; the `options` of the
            launch; and until when it may begin, as `before`, on the clock of `time.time`.

    Returns:
        JSON: the `id` of the job, or the `error`.
    """
    wanted = json.loads(request)
    try:
        if time.time() > wanted["before"]:
            raise ConfigurationError("the kernel was busy for too long, so nothing was started")
        shell = get_ipython()
        assert shell is not None  # a kernel evaluates this
        cell = wanted.get("cell")
        made = (
            _function(shell, wanted["function"])
            if cell is None
            else as_function(shell, cell, wanted["options"]["name"])
        )
        job = notebook_launcher(made, wanted["arguments"], detach=True, **wanted["options"])
    except (NotebookAccelError, TypeError) as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"id": job.id})


def _function(shell: InteractiveShell, name: str) -> Any:
    """What the notebook defines under a name.

    Raises:
        ConfigurationError: It defines no function of that name.
    """
    names: dict[str, Any] = shell.user_ns
    found = names.get(name)
    if callable(found):
        return found
    known = [key for key, value in names.items() if isinstance(value, FunctionType) and value.__module__ == "__main__"]
    listed = f"it defines {', '.join(known[-20:])}" if known else "run the cell that defines it first"
    raise ConfigurationError(f"the notebook has no function {name!r:.80}: {listed}{did_you_mean(name, known)}")
