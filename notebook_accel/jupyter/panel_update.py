"""What the browser gets for the panel of a job in a tab, which `extension/lab/src/panelUpdate.ts` repeats."""

from __future__ import annotations

from typing import Any, TypedDict

from notebook_accel.panel.panel_model import State


class PanelAnswer(TypedDict):
    """The answer to a chart that is enlarged, or to a log that is open."""

    id: str
    content: str
    """JSON; see `panel_model.py`."""
    bytes: str
    """What follows it, in base64."""


class PanelUpdate(TypedDict, total=False):
    """What is new since the last update."""

    seq: int
    """The number of this update, or that of the last one if the state is the same."""
    state: State
    """The whole state, if the page needs it."""
    patch: dict[str, Any]
    """Otherwise, the changes of the state as a merge patch (RFC 7396), if there are any."""
    replies: list[PanelAnswer]
    results: list[str]
    """The flame graphs and profiles that were asked for and are ready, as HTML."""
    pause: int
    """Milliseconds until the page asks again; -1 if nothing changes from now on, unless the page has a request."""
    reading: bool
    """Whether the journal is still being read, so that there is no state yet."""
