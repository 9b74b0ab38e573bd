"""The parts that know IPython: where a launch shows itself, and what the kernel has imported."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from notebook_accel import hardware
from notebook_accel.launch import engines, frontend
from notebook_accel.notebook.kernel import IPythonTerminal, Kernel
from notebook_accel.notebook.preload import Preloader
from notebook_accel.notebook.tracebacks import shorten_ours

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_warmed = False


def attach(shell: InteractiveShell) -> None:
    """Makes launches show themselves as this shell's user expects."""
    if isinstance(frontend.current, IPythonTerminal):
        return
    frontend.use(Kernel(shell) if getattr(shell, "kernel", None) is not None else IPythonTerminal(shell))
    shorten_ours()


def warm(shell: InteractiveShell) -> None:
    """Starts the server in the background, and keeps it at what the shell has imported."""
    global _warmed  # one process has one shell
    if _warmed:
        return
    _warmed = True
    engine = engines.get()
    engine.warm()
    threading.Thread(target=hardware.detect, name="notebook-accel-hardware", daemon=True).start()  # asks the driver
    preloader = Preloader(engine)
    shell.events.register("post_run_cell", lambda *_: preloader.look())
