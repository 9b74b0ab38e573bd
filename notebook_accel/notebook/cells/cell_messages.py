"""What goes with a cell to the ranks, and what comes back.

A cell and its reply travel as plain tuples, which are pickled several times as fast as objects of a class are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """A cell, as a rank runs it."""

    source: str
    """Python: what IPython's own syntax means is written out. Its lines are those of `text`."""
    text: str
    """The cell as the user has written it, for tracebacks and `inspect.getsource`."""
    filename: str
    """Under which the notebook knows it."""
    place: str
    """What the user calls it: `In[3]`."""
    shown: frozenset[int]
    """The ranks whose figures, tables and other rich values are shown."""
    wants_value: bool = False
    """Whether the value of its last expression goes to the notebook."""


@dataclass(frozen=True)
class Variable:
    """A variable of the notebook that the cell reads."""

    name: str
    value: Any
    takers: frozenset[int]
    """The ranks that it is for."""
    changed: frozenset[int] = frozenset()
    """Those of them that had an older one, which goes whatever they have made of it."""


class Reply(NamedTuple):
    """What a rank has to say of a cell that it has run."""

    text: str | None
    """The value of its last expression, in words; `None` if there was none."""
    bundle: Mapping[str, Any]
    """The same, richly, by type; where this rank's is to be shown."""
    metadata: Mapping[str, Any]
    bound: Sequence[str]
    """The names that the rank has bound since its last reply."""
    value: Any
    """The value itself, if it was asked for."""


@dataclass(frozen=True)
class Health:
    """Whether a rank's process group can go on."""

    operations: int
    """How many collective operations it has begun; ranks that stand at different ones can't meet any more."""
    severed: bool
    """Its connections were cut."""
