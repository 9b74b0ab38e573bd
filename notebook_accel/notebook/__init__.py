"""The parts that know IPython: where a launch shows itself, and what the kernel has imported."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from notebook_accel import hardware
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch import engines, frontend
from notebook_accel.notebook import views
from notebook_accel.notebook.kernel import IPythonTerminal, Kernel
from notebook_accel.notebook.preload import Preloader
from notebook_accel.notebook.tracebacks import shorten_ours

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def attach(shell: InteractiveShell) -> None:
    """Makes launches show themselves as this shell's user expects, and keeps the engine up with its imports."""
    if isinstance(frontend.current, IPythonTerminal):
        return
    frontend.use(Kernel(shell) if getattr(shell, "kernel", None) is not None else IPythonTerminal(shell))
    shorten_ours()
    preloader = Preloader(engines.get())
    shell.events.register("post_run_cell", lambda *_: preloader.look())
    threading.Thread(target=_get_ready, name="notebook-accel-ready", daemon=True).start()


def _get_ready() -> None:
    """Does what the first launch would wait for."""
    hardware.detect()  # asks the driver
    with contextlib.suppress(ConfigurationError):  # which the launch is to raise
        views.choose()
