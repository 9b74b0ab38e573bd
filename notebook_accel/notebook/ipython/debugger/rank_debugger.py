"""The debuggers of the ranks that run now: which ranks are held, which one the user looks at, and requests to them.

Everything here runs on the thread of the kernel's control channel, except where a docstring says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sysconfig
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.launch.driver.debug_relay import DISCONNECT, DebugRelay
from notebook_accel.launch.wire import stack_frames
from notebook_accel.notebook.ipython.debugger import dap
from notebook_accel.notebook.ipython.debugger.dap import Message

_TIMEOUT = 10.0
"""Seconds to wait for a response of a rank's debugger."""
_HOLD_AFTER = 0.3
"""Seconds after a rank stops for which the others may reach the same breakpoint; those that don't are then held."""
_MOVE_AFTER = 1.0
"""Seconds after a step that has not ended, as a rank waits for one that is held, after which that one is shown."""
_FIRST_NUMBER = 1000
"""The number of the first request; those that configure a debugger have lower ones."""


class RankLost(Exception):
    """The rank has ended, or does not respond."""


@dataclass
class Session:
    """The debugger of a rank during one call."""

    number: int
    relay: DebugRelay
    member: int
    """The rank's index in the job of its call."""
    thread: int | None = None
    """The thread that has stopped; `None` while the rank runs."""
    reason: str = ""
    """Why it has stopped."""
    is_stepping: bool = False
    """Whether it runs only to the end of a step."""

    @property
    def rank(self) -> int:
        return self.relay.rank_of(self.member)


class RankDebugger:
    """Relays the debugger of the front end to those of the ranks.

    Args:
        publish: Sends an event to the front end.
    """

    def __init__(self, publish: Callable[[Message], object]) -> None:
        self._publish = publish
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: dict[int, Session] = {}
        self._current: Session | None = None
        """The rank that the user looks at."""
        self._settings: dict[tuple[str, str], Message] = {}
        """The last request of each kind that configures a debugger; of those that set breakpoints, for each file."""
        self._numbers, self._request_numbers = itertools.count(1), itertools.count(_FIRST_NUMBER)
        self._responses: dict[int, asyncio.Future[Message]] = {}
        self.lists_threads = False
        """Whether the front end lists threads, so that the stack of each is shown on its own."""

    # What the relay calls, on the thread that runs the call

    def setup(self) -> Sequence[Mapping[str, Any]]:
        """The requests that configure the debugger of a rank as that of the kernel is."""
        requests = [
            ("initialize", {"adapterID": "", "linesStartAt1": True, "columnsStartAt1": True, "pathFormat": "path"}),
            ("attach", {"justMyCode": False, "rules": _rules(), "multiThreadsSingleNotification": True}),
            *((command, arguments) for (command, _), arguments in list(self._settings.items())),
            ("configurationDone", {}),
        ]
        return [_request(number, *each) for number, each in enumerate(requests, 1)]

    def begin(self, relay: DebugRelay) -> None:
        self._call(self._begin, relay)

    def on_message(self, relay: DebugRelay, member: int, message: Message) -> None:
        self._call(self._on_message, relay, member, message)

    def end(self, relay: DebugRelay) -> None:
        self._call(self._end, relay)

    def _call(self, function: Callable[..., object], *args: object) -> None:
        """Calls a function on the control channel's thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the kernel ends
                self._loop.call_soon_threadsafe(function, *args)

    # Ranks come, report, and go

    def _begin(self, relay: DebugRelay) -> None:
        for member in relay.members:
            session = Session(next(self._numbers), relay, member)
            self._sessions[session.number] = session

    def _on_message(self, relay: DebugRelay, member: int, message: Message) -> None:
        session = next((each for each in self._sessions.values() if (each.relay, each.member) == (relay, member)), None)
        if session is None:
            return
        if message["type"] == "response":
            waiting = self._responses.pop(message["request_seq"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif message["event"] == "stopped":
            self._on_stop(session, message["body"])
        elif message["event"] == "continued":
            self._on_continue(session)

    def _on_stop(self, session: Session, body: Mapping[str, Any]) -> None:
        is_first = not self.held()
        session.thread, session.reason, session.is_stepping = body["threadId"], body["reason"], False
        if self._current is None or self._current.thread is None:
            self._current = self.held()[0]
        self._show_stop()
        if is_first:
            self._later(_HOLD_AFTER, self._hold_others)

    def _on_continue(self, session: Session) -> None:
        thread, session.thread = session.thread, None
        if thread is not None and not self.held():
            self._publish_continued(session, thread)

    def _end(self, relay: DebugRelay) -> None:
        ended = [each for each in self._sessions.values() if each.relay is relay]
        for session in ended:
            del self._sessions[session.number]
        held = [each for each in ended if each.thread is not None]
        if held and not self.held():
            assert held[0].thread is not None
            self._publish_continued(held[0], held[0].thread)

    def _hold_others(self) -> None:
        if held := self.held():
            relays = {id(each.relay) for each in held}
            for other in self._sessions.values():
                if other.thread is None and not other.is_stepping and id(other.relay) in relays:
                    self.send(other, "pause", {"threadId": "*"})

    def _move_on(self, stepped: Session) -> None:
        """Shows a rank that is held if the one that was to take a step still runs."""
        if self._current is stepped and stepped.thread is None and (held := self.held()):
            self._current = held[0]
            self._show_stop()

    def _show_stop(self) -> None:
        current = self._current
        assert current is not None
        assert current.thread is not None
        body = {
            "reason": current.reason,
            "description": f"rank {current.rank}",
            "threadId": current.number * dap.BASE + current.thread,
            "allThreadsStopped": False,
        }
        self._publish(dap.event("stopped", body))

    def _publish_continued(self, session: Session, thread: int) -> None:
        number = session.number * dap.BASE + thread
        self._publish(dap.event("continued", {"threadId": number, "allThreadsContinued": False}))

    def _later(self, seconds: float, function: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        self._loop.call_later(seconds, function, *args)

    # What the kernel's debugger asks

    def attach_to(self, loop: asyncio.AbstractEventLoop) -> None:
        """Takes the event loop of the control channel."""
        self._loop = loop

    def held(self) -> list[Session]:
        """The ranks that are held, the one that the user looks at first."""
        found = [each for each in self._sessions.values() if each.thread is not None]
        return sorted(found, key=lambda each: (each is not self._current, each.number))

    @property
    def running(self) -> Collection[Session]:
        """All ranks that run a call, whether they are held or not."""
        return self._sessions.values()

    def session(self, number: int) -> Session | None:
        """The session of this number, unless its call is over."""
        return self._sessions.get(number)

    def look_at(self, session: Session) -> None:
        """The user has chosen a frame of this rank; steps are now its."""
        if session.thread is not None:
            self._current = session

    def step(self, session: Session) -> None:
        """The rank takes a step, and the others stay where they are."""
        self._current = session
        session.thread, session.is_stepping = None, True
        self._later(_MOVE_AFTER, self._move_on, session)

    def go_on(self) -> None:
        """Lets all ranks continue, those too that wait in C code and would be held once that returns."""
        for session in self._sessions.values():
            self.send(session, "continue", {"threadId": "*"})
            self._on_continue(session)

    def configure(self, command: str, key: str, arguments: Message) -> None:
        """Keeps a setting for ranks that start later, and applies it to those that run."""
        self._settings[command, key] = arguments
        for session in self._sessions.values():
            self.send(session, command, arguments)

    def detach(self) -> None:
        """Lets all ranks continue without a debugger."""
        self._settings.clear()
        for session in self._sessions.values():
            session.thread = None
            session.relay.send([session.member], [DISCONNECT])

    def send(self, session: Session, command: str, arguments: Message) -> int:
        """Sends a request whose response is not needed; returns its number."""
        number = next(self._request_numbers)
        session.relay.send([session.member], [_request(number, command, arguments)])
        return number

    async def ask(self, session: Session, command: str, arguments: Message) -> Message:
        """Sends a request, and returns the response.

        Raises:
            RankLost: There is none.
        """
        number = self.send(session, command, arguments)
        response = self._responses[number] = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(response, _TIMEOUT)
        except (asyncio.TimeoutError, TimeoutError):  # the same from Python 3.11 on
            raise RankLost(f"the debugger of rank {session.rank} has not responded to {command!r}") from None
        finally:
            self._responses.pop(number, None)


def _request(number: int, command: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "request", "seq": number, "command": command, "arguments": dict(arguments)}


def _rules() -> list[dict[str, Any]]:
    """Keeps steps out of the code that runs a cell or a function: this package, IPython, and Python's own library.

    IPython runs each statement of a cell by itself, so a step from one to the next passes through its code.
    """
    import IPython
    import traitlets

    paths = sysconfig.get_paths()
    ours = {stack_frames.PACKAGE, *IPython.__path__, *traitlets.__path__, paths["stdlib"], paths["platstdlib"]}
    installed = {paths["purelib"], paths["platlib"]}  # possibly below Python's library; the longest path counts
    return [{"path": path, "include": path in installed} for path in sorted(ours | installed)]
