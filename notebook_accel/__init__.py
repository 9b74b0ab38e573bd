"""Distributed training from a notebook: a function defined in a cell runs on every device.

from notebook_accel import notebook_launcher
results = notebook_launcher(train, num_processes=2)
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from notebook_accel.errors import (
        ConfigurationError,
        HardwareError,
        JobCancelledError,
        LaunchError,
        NotebookAccelError,
        PayloadError,
        RankError,
        RankTimeoutError,
    )
    from notebook_accel.launch.job import Job
    from notebook_accel.launch.launcher import debug_launcher, notebook_launcher
    from notebook_accel.launch.reporting import report
    from notebook_accel.notebook.views import set_view

__version__ = "0.1.0"
__all__ = [
    "ConfigurationError",
    "HardwareError",
    "Job",
    "JobCancelledError",
    "LaunchError",
    "NotebookAccelError",
    "PayloadError",
    "RankError",
    "RankTimeoutError",
    "debug_launcher",
    "notebook_launcher",
    "report",
    "set_view",
]
_HOMES = {
    "errors": [
        "ConfigurationError",
        "HardwareError",
        "JobCancelledError",
        "LaunchError",
        "NotebookAccelError",
        "PayloadError",
        "RankError",
        "RankTimeoutError",
    ],
    "launch.job": ["Job"],
    "launch.launcher": ["debug_launcher", "notebook_launcher"],
    "launch.reporting": ["report"],
    "notebook.views": ["set_view"],
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports what is asked for, when it is: the kernel needs no torch, and a rank nothing of the kernel's."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext notebook_accel`: gets ready for a launch from here."""
    from notebook_accel.launch import engines

    engines.get().warm()  # before the rest is imported: it takes the longest, and goes on beside this process
    from notebook_accel import notebook

    notebook.attach(shell)


def _attach_to_shell() -> None:
    """Gets ready when imported in a notebook's kernel; elsewhere nothing starts until it is used."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    if getattr(shell, "kernel", None) is not None:
        load_ipython_extension(shell)
        return
    from notebook_accel import notebook

    notebook.attach(shell)


_attach_to_shell()
