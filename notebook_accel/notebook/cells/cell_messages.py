"""The messages that carry a cell to the ranks, and their replies.

A cell and its reply are sent as plain tuples, which are pickled several times as fast as instances of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from notebook_accel.notebook.cells.fingerprints import Fingerprint


class Cell(NamedTuple):
    """A cell to run on a rank."""

    source: str
    """The cell with IPython syntax translated to Python, line for line."""
    text: str
    """The cell as the user wrote it, for tracebacks and `inspect.getsource`."""
    filename: str
    """The file name under which the notebook compiled it."""
    place: str
    """The name that the user sees, such as `In[3]`."""
    shown: frozenset[int]
    """The ranks whose figures, tables and other rich values are shown."""
    wants_value: bool = False
    """Whether to send the value of its last expression to the notebook."""
    number: int = 0
    """The number under which the rank keeps its text and its value, in `In` and `Out`; 0 if it doesn't."""


@dataclass(frozen=True)
class Variable:
    """A variable of the notebook that the cell reads."""

    name: str
    value: Any
    receivers: frozenset[int]
    """The ranks that should receive it."""
    changed: frozenset[int] = frozenset()
    """The receivers that had an older value, which is replaced even if they have changed it."""
    edited: frozenset[int] = frozenset()
    """The receivers that had the same object, whose content has changed."""
    fingerprint: Fingerprint | None = None
    """What it holds in the notebook; `None` if it will not be sent again when its content changes."""


class Reply(NamedTuple):
    """A rank's reply to a cell."""

    text: str | None
    """The value of its last expression, as text; `None` if there was none."""
    bundle: bytes
    """The same value as in the event `Shown`, if it is a rich one and this rank's are shown; otherwise empty."""
    bound: Sequence[str]
    """The names that the rank has bound since its last reply."""
    value: Any
    """The value itself, if `Cell.wants_value`."""


@dataclass(frozen=True)
class Health:
    """Whether a rank's process group is still usable, and what a cell that failed has left."""

    operations: int
    """The number of collectives that it has started; ranks whose numbers differ can no longer synchronize."""
    severed: bool
    """Whether its connections were cut in order to end a collective that a failed rank never joined."""
    bound: Sequence[str] = ()
    """The names that the rank has bound since its last reply, as in `Reply`."""
