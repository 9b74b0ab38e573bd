"""Launches a function of the notebook for an agent: `jupyter/mcp.py` has the kernel call `start`."""

from __future__ import annotations

import json
import time
from types import FunctionType
from typing import Any

from IPython.core.getipython import get_ipython

from notebook_accel.errors import ConfigurationError, NotebookAccelError, did_you_mean
from notebook_accel.launch.driver.launcher import notebook_launcher


def start(request: str) -> str:
    """Launches a function, detached.

    Args:
        request: JSON: the `function`, its `arguments`, the `options` of the launch, and until when it may begin, as
            `before`, on the clock of `time.time`.

    Returns:
        JSON: the `id` of the job, or the `error`.
    """
    wanted = json.loads(request)
    try:
        if time.time() > wanted["before"]:
            raise ConfigurationError("the kernel was busy for too long, so nothing was started")
        job = notebook_launcher(_function(wanted["function"]), wanted["arguments"], detach=True, **wanted["options"])
    except (NotebookAccelError, TypeError) as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"id": job.id})


def _function(name: str) -> Any:
    """What the notebook defines under a name.

    Raises:
        ConfigurationError: It defines no function of that name.
    """
    shell = get_ipython()
    names: dict[str, Any] = {} if shell is None else shell.user_ns
    found = names.get(name)
    if callable(found):
        return found
    known = [key for key, value in names.items() if isinstance(value, FunctionType) and value.__module__ == "__main__"]
    listed = f"it defines {', '.join(known[-20:])}" if known else "run the cell that defines it first"
    raise ConfigurationError(f"the notebook has no function {name!r:.80}: {listed}{did_you_mean(name, known)}")
