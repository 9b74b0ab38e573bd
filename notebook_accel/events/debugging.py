"""The messages to and from the debugger of a rank, in the Debug Adapter Protocol.

https://microsoft.github.io/debug-adapter-protocol/specification
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notebook_accel.events.base import Event


@dataclass(frozen=True)
class DebugRequested(Event):
    """Requests to the rank's debugger, each the text of a JSON object."""

    kind = "debug"
    messages: Sequence[str]
    before_call: bool = False
    """Whether to start the debugger if it isn't running, and to handle the requests before the next call begins."""


@dataclass(frozen=True)
class DebugReplied(Event):
    """A response or an event of the rank's debugger."""

    kind = "debugged"
    message: str
    """The text of a JSON object."""
