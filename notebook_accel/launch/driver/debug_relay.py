"""Passes messages between the notebook's debugger and those of the ranks that run a call.

The messages are those of the Debug Adapter Protocol. The notebook's debugger registers itself here as the client; while
there is none, ranks run without a debugger, and all of this costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from notebook_accel.events import DebugReplied, DebugRequested
from notebook_accel.launch.engines.ranks import Ranks
from notebook_accel.launch.wire.event_loop import Calls

if TYPE_CHECKING:
    from notebook_accel.launch.job.job import Job

DISCONNECT = {"type": "request", "seq": 0, "command": "disconnect", "arguments": {}}
"""The request after which a rank continues without a debugger."""


class DebugClient(Protocol):
    """The debugger of the notebook. `setup` to `end` are called on the thread that runs the call."""

    def setup(self) -> Sequence[Mapping[str, Any]]:
        """The requests that configure the debugger of a rank."""

    def begin(self, relay: DebugRelay) -> None:
        """A call begins on the relay's ranks."""

    def on_message(self, relay: DebugRelay, member: int, message: Mapping[str, Any]) -> None:
        """Handles a response or an event of a rank's debugger."""

    def end(self, relay: DebugRelay) -> None:
        """The call is over."""


_client: DebugClient | None = None


def set_client(client: DebugClient | None) -> None:
    """Debugs the ranks of further calls; `None` ends that."""
    global _client  # a kernel has one debugger
    _client = client


class DebugRelay:
    """The debuggers of the ranks that run one call. Only `send` may be called by other threads.

    Args:
        ranks: The ranks.
        calls: Takes what other threads send to the event loop of the ranks.
        job: Their job.
        members: The ranks that run the call, by their index in the job.
    """

    def __init__(self, ranks: Ranks, calls: Calls, job: Job, members: Sequence[int]) -> None:
        self._ranks = ranks
        self._calls = calls
        self._job = job
        self.members = members
        self._client: DebugClient | None = None
        self._held: set[int] = set()
        self._held_at: float | None = None
        """When a rank was first seen to be held, since `held_seconds` was last called."""
        self._is_released = False

    def rank_of(self, member: int) -> int:
        """The global rank of a member."""
        return self._job.ranks[member].rank

    def open(self) -> None:
        """Configures the debuggers, before the call is sent to the ranks."""
        self._client = _client
        if self._client is None:
            if self._ranks.is_debugged:  # the user has turned the debugger off since the last call
                self._request(self.members, [DISCONNECT], before_call=True)
                self._ranks.is_debugged = False
            return
        self._ranks.is_debugged = True
        self._request(self.members, self._client.setup(), before_call=True)
        self._client.begin(self)

    def send(self, members: Collection[int], messages: Sequence[Mapping[str, Any]]) -> None:
        """Sends requests to the debuggers of members. Any thread may call this."""
        self._calls.add(partial(self._send, members, [json.dumps(message) for message in messages]))

    def _send(self, members: Collection[int], messages: Sequence[str]) -> None:
        self._ranks.send(members, DebugRequested(messages))
        self._ranks.loop.unthrottle()  # a user waits for the reply

    def on_reply(self, member: int, event: DebugReplied) -> None:
        """Passes a message of a rank's debugger on to the client."""
        if self._client is None:
            return
        message = json.loads(event.message)
        if message.get("event") == "stopped":
            self._held.add(member)
        elif message.get("event") in ("continued", "terminated"):
            self._held.discard(member)
        self._client.on_message(self, member, message)

    def on_exit(self, member: int) -> None:
        """The process of a member has ended."""
        self._held.discard(member)

    def held_seconds(self, now: float) -> float:
        """Seconds since the last call of this method for which a rank was held."""
        since, self._held_at = self._held_at, now if self._held else None
        return 0.0 if since is None else now - since

    def release(self) -> None:
        """Lets all ranks continue without a debugger, once and during this call: the next one sets it up again."""
        if self._client is not None and not self._is_released:
            self._is_released = True
            self._request(self.members, [DISCONNECT])

    def close(self) -> None:
        """The call is over."""
        client, self._client = self._client, None
        if client is not None:
            client.end(self)

    def _request(
        self, members: Collection[int], messages: Sequence[Mapping[str, Any]], *, before_call: bool = False
    ) -> None:
        self._ranks.send(members, DebugRequested([json.dumps(each) for each in messages], before_call))
