"""Distributed training from a notebook: a function defined in a cell runs on every device.

from notebook_accel import Accelerator, notebook_launcher
results = notebook_launcher(train, num_processes=2)
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from notebook_accel import accelerate_names, exports, garbage_collection

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0a1"
_MODULES = exports.exported()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Imports a name at its first use: the kernel must not import torch, nor a rank the kernel's modules."""
    if name not in _MODULES:
        return accelerate_names.other(__name__, name)
    value = exports.load(name, _MODULES[name])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, and the modules of Accelerate's, without the folders of this package and its own imports."""
    own = (name for name, value in globals().items() if isinstance(value, accelerate_names.AccelerateModule))
    return sorted({*__all__, *own, *filter(lambda name: name.startswith("__"), globals())})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext notebook_accel`: registers the magics, and starts the fork server in advance."""
    from notebook_accel.errors import LaunchError
    from notebook_accel.launch import engines

    with contextlib.suppress(LaunchError):  # which the launch is to raise
        engines.default().warm()  # before the rest is imported: it takes the longest, and runs beside this process
    from notebook_accel import notebook

    notebook.attach(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext notebook_accel`: removes the magics; launches still work."""
    from notebook_accel.notebook.magics import accelerate

    accelerate.unregister(shell)


def _attach_to_shell() -> None:
    """Loads the extension when imported in a notebook's kernel; elsewhere nothing starts before its first use."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        _attach_to_marimo()
        return
    if getattr(shell, "kernel", None) is not None:
        load_ipython_extension(shell)
        return
    from notebook_accel import notebook

    notebook.attach(shell)


def _attach_to_marimo() -> None:
    if "marimo" not in sys.modules:
        return
    from notebook_accel.notebook import marimo_console

    marimo_console.attach()


accelerate_names.install()
with garbage_collection.paused():
    _attach_to_shell()
