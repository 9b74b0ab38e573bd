"""All code that depends on IPython or Jupyter. It runs in the kernel, except `cells/on_rank/`, which runs in the ranks.

    magics/  ─ `%accelerate`: settings, status, and the table of its subcommands (magics/command.py)
    cells/   ─ `%%accelerate`: cells on persistent ranks
    ipython/ ─ the console in IPython: output, cell numbers, tracebacks, completion
    views/   ─ how a job is drawn below its cell; the table of views is in views/__init__.py
    marimo_console.py ─ the console in marimo, in place of ipython/
    agent_launch.py   ─ launches a function or a cell for an agent that has asked the Jupyter server to

Imports run downwards: magics and agent_launch, cells, ipython and marimo_console, views.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from typing import TYPE_CHECKING

from notebook_accel import hardware
from notebook_accel.config import file
from notebook_accel.errors import ConfigurationError, LaunchError
from notebook_accel.launch.engines import preloader
from notebook_accel.launch.show import console
from notebook_accel.launch.system import own_process
from notebook_accel.notebook import views
from notebook_accel.notebook.ipython.cell_numbers import note_text
from notebook_accel.notebook.ipython.console import IPythonTerminal, Kernel
from notebook_accel.notebook.ipython.debugger import kernel_debugger
from notebook_accel.notebook.ipython.tracebacks import install
from notebook_accel.notebook.magics import accelerate
from notebook_accel.notebook.views import widget_support

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_NEEDED_BY_LAUNCHES = ("driver.launch", "driver.attach", "driver.changed_modules", "show.usage_watch")
"""Modules that a launch imports, and that the cell that imports this package does not wait for."""


def attach(shell: InteractiveShell) -> None:
    """Registers the magics, makes IPython the console of launches, and preloads the notebook's imports."""
    accelerate.register(shell)  # also after the magics were unregistered
    if isinstance(console.current, IPythonTerminal):
        return
    console.use(Kernel(shell) if getattr(shell, "kernel", None) is not None else IPythonTerminal(shell))
    install()
    kernel_debugger.install(getattr(shell, "kernel", None))
    shell.events.register("pre_run_cell", note_text)
    shell.events.register("post_run_cell", lambda *_: preloader.current.update())
    shell.events.register("pre_run_cell", lambda *_: widget_support.current.cell_begins())
    shell.events.register("post_run_cell", lambda *_: widget_support.current.cell_ends())
    with contextlib.suppress(LaunchError):  # which the launch is to raise
        own_process.start_thread(_warm_up, "notebook-accel-ready")


def _warm_up() -> None:
    """Imports modules and fills caches that the first launch would otherwise wait for."""
    from notebook_accel.launch.journal import pruning, records
    from notebook_accel.launch.plan import run_facts

    hardware.detect()  # imports NVIDIA's library, which takes tens of milliseconds
    pruning.prune()  # measures the recorded jobs
    records.unended_records()  # looks which of them have ended
    run_facts.versions()  # reads the metadata of installed packages
    for name in _NEEDED_BY_LAUNCHES:
        importlib.import_module(f"notebook_accel.launch.{name}")
    with contextlib.suppress(ConfigurationError):  # which the launch is to raise
        file.from_file(os.environ)
    with contextlib.suppress(ConfigurationError):  # which the launch is to raise
        views.choose()
