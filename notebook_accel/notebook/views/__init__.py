"""Draws a job below its cell. A view reads the job and has no state of its own about it.

    job_output.py      the view `widget` on pages that draw jobs themselves
    widget.py          the view `widget` on other pages; panel.py is its ipywidget, and sends what
                       `notebook_accel/panel/` makes
    marimo_view.py     the panel in marimo
    widget_support.py  detects whether the front end draws widgets
    static_views.py    the views `html` and `text`
    control_channel.py receives what a widget sends while a cell runs

browser/ is the script of the widget, built from extension/. A new view is a class with `refresh()`, `finish()`, and
`is_seen` in a file here, and a row of `_VIEWS` below. The table in a terminal is not a view: see
`launch/show/terminal.py`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from importlib import util
from typing import TYPE_CHECKING, Any, NamedTuple

from notebook_accel.errors import ConfigurationError, closest
from notebook_accel.launch.show.console import View
from notebook_accel.notebook.views import widget_support

if TYPE_CHECKING:
    from notebook_accel.launch.job.job import Job

VIEW_VARIABLE = "NOTEBOOK_ACCEL_VIEW"
_VIEWS = {
    "widget": "widget.WidgetView",
    "html": "static_views.HtmlView",
    "text": "static_views.TextView",
}
_OUTPUT = "job_output.JobOutput"
"""What the view `widget` is on pages that draw jobs themselves."""
_chosen: str | None = None


def set_view(name: str | None) -> None:
    """Sets how this notebook shows its launches from now on.

    Args:
        name: `widget`: a panel that the browser draws, with a Stop button and expandable ranks. `html`: a table that
            is redrawn as it changes. Both leave a table in the saved notebook. `text`: lines of plain text.
            `None`: the value of the environment variable NOTEBOOK_ACCEL_VIEW; if that is not set, `widget` if the
            notebook can show it, otherwise `html`.

    Raises:
        ConfigurationError: There is no such view, or a package that it needs is not installed.
    """
    global _chosen  # a kernel belongs to one user
    if name is not None:
        _check(name, "set_view()")
    _chosen = name


def choose() -> Callable[[Job], View]:
    """Returns the function that starts to show a job in the view that the user has chosen.

    Raises:
        ConfigurationError: The environment variable names a view that does not exist.
    """
    return _load(_choice().path)


def described() -> tuple[str, str]:
    """The view that a launch in the running cell would have, and why.

    Raises:
        ConfigurationError: The environment variable names a view that does not exist.
    """
    choice = _choice()
    return choice.name, choice.why


class _Choice(NamedTuple):
    path: str
    name: str
    why: str


def _choice() -> _Choice:
    name, source = _chosen, "set_view()"
    if name is None:
        name, source = os.environ.get(VIEW_VARIABLE) or None, VIEW_VARIABLE
        if name:
            _check(name, VIEW_VARIABLE)
    if name not in (None, "widget"):
        return _Choice(_VIEWS[name], name, source)
    from notebook_accel.launch.journal import pages  # which only a launch needs

    if pages.draws_jobs(widget_support.page_session()):
        return _Choice(_OUTPUT, "panel", "this page draws it from what its Jupyter server reads")
    if name or widget_support.current.draw_widgets():
        return _Choice(_VIEWS["widget"], "panel, as a widget", "this page, or its Jupyter server, doesn't see the jobs")
    return _Choice(_VIEWS["html"], "html", "this front end isn't known to show widgets")


def _load(path: str) -> Callable[[Job], View]:
    module, _, cls = path.partition(".")
    found: Callable[[Job], View] = getattr(importlib.import_module(f"{__name__}.{module}"), cls)
    return found


def _check(name: Any, source: str) -> None:
    if not isinstance(name, str) or name not in _VIEWS:
        close = closest(str(name), _VIEWS)
        hint = f" (did you mean {close!r}?)" if close else ""
        raise ConfigurationError(f"{source}: there is no view {name!r}{hint}; choose one of {', '.join(_VIEWS)}")
    if name == "widget" and util.find_spec("anywidget") is None:
        raise ConfigurationError(
            f"{source}: the view 'widget' needs anywidget, which is not installed; run "
            "`pip install anywidget` and restart the kernel, or choose 'html'"
        )
