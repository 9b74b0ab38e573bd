"""What is sent to the ranks with a cell, and their reply.

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
    """The name that the notebook has compiled it under."""
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
    receivers: frozenset[int]
    """The ranks that are to have it."""
    changed: frozenset[int] = frozenset()
    """Those of them that had an older one, which goes whatever they have made of it."""


class Reply(NamedTuple):
    """What a rank returns from a cell."""

    text: str | None
    """The value of its last expression, as text; `None` if there was none."""
    bundle: Mapping[str, Any]
    """The same by MIME type, if this rank's rich values are shown."""
    metadata: Mapping[str, Any]
    bound: Sequence[str]
    """The names that the rank has bound since its last reply."""
    value: Any
    """The value itself, if `Cell.wants_value`."""


@dataclass(frozen=True)
class Health:
    """Whether a rank's process group can go on."""

    operations: int
    """How many collective operations it has begun; ranks that stand at different ones can't meet any more."""
    severed: bool
    """Whether its connections were cut, to end a collective that a failed rank never joined."""
