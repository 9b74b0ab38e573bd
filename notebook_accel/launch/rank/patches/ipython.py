"""Patches IPython's display functions: what a rank displays is sent to the driver, which shows it below the cell.

They work as in the notebook: with figures, with updates and `clear_output`, and `display` needs no import. The shell
that they need is created when something is displayed for the first time.
"""

from __future__ import annotations

import builtins
import functools
import sys
import traceback
from collections.abc import Callable
from typing import Any

from notebook_accel import events
from notebook_accel.launch.wire.mirrored.on_import import when_imported

_FUNCTIONS = ("display", "update_display", "publish_display_data", "clear_output")
_MODULES = ("IPython.core.display_functions", "IPython.core.display")
"""Where the functions are, in newer versions and in IPython 7."""
_COPIES = ("IPython.display", "IPython.core.display", "IPython.core.interactiveshell")
"""Modules that import some of the functions by their names, and may have done so already."""


def install() -> None:
    """Patches the functions once IPython is imported."""
    when_imported(dict.fromkeys(_MODULES, _patch))
    builtins.display = _display  # type: ignore[attr-defined]


def show_open_figures() -> None:
    """Shows the figures that pyplot still holds, and closes them, as Jupyter does at the end of a cell."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    inline: Any = sys.modules.get("matplotlib_inline.backend_inline")
    if pyplot is None or inline is None or not events.is_drawn() or not pyplot.get_fignums():
        return
    if not pyplot.get_backend().endswith("inline"):
        return
    try:
        # In interactive mode, which is also that of cells on ranks, the back end knows what it hasn't shown yet.
        (inline.flush_figures if pyplot.isinteractive() else pyplot.show)()
    except Exception:
        traceback.print_exc()  # the function itself has not failed


def _display(*values: Any, **options: Any) -> Any:
    """The `display` of code that does not import it, as in a notebook."""
    try:
        from IPython.display import display
    except ImportError:
        raise NameError("name 'display' is not defined") from None
    return display(*values, **options)  # type: ignore[no-untyped-call]


def _patch(module: Any) -> None:
    for name in _FUNCTIONS:
        original = vars(module).get(name)
        if original is None or hasattr(original, "__wrapped__"):
            continue
        patched = _with_shell(original)
        for place in (module, *(sys.modules[copy] for copy in _COPIES if copy in sys.modules)):
            if vars(place).get(name) is original:
                setattr(place, name, patched)


def _with_shell(original: Callable[..., Any]) -> Callable[..., Any]:
    """Creates the shell before the function is called, if the rank has none."""

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if events.is_drawn():
            from notebook_accel.launch.rank import display_shell

            display_shell.ensure()
        return original(*args, **kwargs)

    return function
