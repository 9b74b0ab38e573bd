"""Started ranks: `RankProcess` is one of them, and `Ranks` is all that an engine has made in one start.

Each kind of engine has a subclass of `Ranks`, for how its ranks get calls and signals, and how they end.
"""

from __future__ import annotations

import contextlib
import enum
import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence

from notebook_accel.errors import LaunchError
from notebook_accel.events import Blobs, Cleared, Event, Exited, Failed, Heartbeat, Hello, Returned, Shown, Written
from notebook_accel.launch.system.network import ReservedPorts
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload

_EXIT_TIMEOUT = 2.0
"""How many seconds ranks have to exit by themselves and run their exit handlers."""
_INTERRUPT_TIMEOUT = 0.2
"""Seconds to wait for a rank to end a call of `call_idle` that was interrupted."""
_OUTPUT = (Written, Shown, Cleared)
_MAX_UNREAD = 16 * 2**20
"""Bytes of output that are read between two calls: a thread of a rank may write forever."""


class Life(enum.Enum):
    """How far a rank has come. Only `RankProcess` changes it."""

    IDLE = "idle"  # it has no call to answer: it starts, or waits for a call
    BUSY = "busy"  # it was sent a call, and has not answered
    LEAVING = "leaving"  # it has no call to answer, and none follows, so it exits
    EXITED = "exited"  # it has exited, or has announced that it exits now


class RankProcess:
    """One rank, from its start to its end: whether it lives, whether a call runs, and how it ended."""

    def __init__(self) -> None:
        self.life = Life.IDLE
        self.hello: Hello | None = None
        """`None` until it has started."""
        self.exited: Exited | None = None
        """How it ended; `None` until then."""
        self.heartbeat: Heartbeat | None = None
        """Its last."""
        self.unread: list[Written | Shown | Cleared] = []
        """What it has written and displayed while there was no listener."""

    def on_call(self) -> None:
        """It is sent a call."""
        if self.life is not Life.EXITED:
            self.life = Life.BUSY

    def on_finish(self) -> None:
        """No further call follows."""
        if self.life is Life.IDLE:
            self.life = Life.LEAVING

    def on_event(self, event: Event) -> None:
        """Records the part of an event that outlasts a call."""
        if isinstance(event, Heartbeat):
            self.heartbeat = event
        elif isinstance(event, Hello):
            self.hello = event
        elif isinstance(event, Exited):
            self.exited, self.life = event, Life.EXITED
        elif isinstance(event, (Returned, Failed)) and self.life is Life.BUSY:
            self.life = Life.IDLE

    @property
    def latest(self) -> Iterator[Event]:
        """The events of earlier calls that a new call's job starts from."""
        return (event for event in (self.hello, self.heartbeat, self.exited) if event is not None)


class Ranks(ABC):
    """The ranks of one start, numbered from 0 on this node. One call runs on them at a time.

    Their events arrive while the event loop runs, those of each rank in order: what it wrote comes as `Written`, before
    its next answer, display or request for input. The last event of each rank is `Exited`.

    Args:
        size: Their number.
        ports: Are reserved until they have exited.
        loop: Reads what they send, on the thread that uses the ranks.
    """

    processes: Sequence[RankProcess]
    """The ranks."""

    def __init__(self, size: int, ports: ReservedPorts, loop: EventLoop) -> None:
        self.size = size
        self.loop = loop
        self.listener: Callable[[int, Event], object] | None = None
        """Called with each event of `members`, and with the exit of any rank. Without it, output is kept as unread."""
        self.members: Collection[int] = range(size)
        """The ranks whose events the listener gets."""
        self.on_failure: Callable[[LaunchError], object] = _raise
        """Called if the ranks could not be started, or if what starts them has ended. No event follows."""
        self.is_debugged = False
        """Whether the notebook's debugger has been configured on ranks."""
        self._unread_bytes = 0
        self._oom_kills_before = _oom_kills()
        self._ports = ports

    # Requests

    def call(self, ranks: Collection[int], payload: Payload) -> None:
        """Sends a call to ranks."""
        for rank in ranks:
            self.processes[rank].on_call()
        self._call(ranks, payload)

    def finish(self, ranks: Collection[int]) -> None:
        """Tells ranks that no further call follows, so that they exit after their last."""
        for rank in ranks:
            self.processes[rank].on_finish()
        self._finish(ranks)

    @abstractmethod
    def _call(self, ranks: Collection[int], payload: Payload) -> None: ...

    @abstractmethod
    def _finish(self, ranks: Collection[int]) -> None: ...

    @abstractmethod
    def send(self, ranks: Collection[int], event: Event) -> None:
        """Sends an event of `events/requests.py` to ranks. One that has exited is left out."""

    @abstractmethod
    def signal(self, rank: int, signum: int) -> None:
        """Sends a signal to a rank that has not exited; SIGKILL also ends the processes that the rank has started."""

    @abstractmethod
    def dump_stacks(self, ranks: Collection[int], number: int) -> None:
        """Has ranks that don't reply to `StacksRequested` write their stacks by a signal, which needs no GIL.

        Args:
            ranks: The ranks. One that isn't a process of its own can't do that.
            number: Of the request. The event `Stacks` that follows carries it.
        """

    @abstractmethod
    def pause(self, rank: int) -> None:
        """Holds back a rank's events, except its exit, so that a rank that writes much has to wait."""

    @abstractmethod
    def resume(self, rank: int) -> None:
        """Undoes `pause`."""

    @abstractmethod
    def close_store(self) -> None:
        """Closes the store, so that ranks that wait there for one that has exited get an error. Only while stopping."""

    @abstractmethod
    def expect_ends(self) -> None:
        """Lets ranks that have all returned exit by themselves, even after `close`, which kills the others."""

    def close(self) -> None:
        """Kills the remaining ranks and frees all resources. No event follows."""
        self._ports.close()

    # Reports

    @property
    def busy(self) -> set[int]:
        """Ranks that have been sent a call but have not answered."""
        return {rank for rank, process in enumerate(self.processes) if process.life is Life.BUSY}

    @property
    def exited(self) -> dict[int, Exited]:
        """Ranks that have exited, and how."""
        return {rank: process.exited for rank, process in enumerate(self.processes) if process.exited is not None}

    def _report(self, rank: int, event: Event) -> None:
        """Records an event of a rank, and passes it on to the listener."""
        process = self.processes[rank]
        if isinstance(event, Exited) and process.exited is not None:
            return  # it has announced its exit itself
        process.on_event(event)
        if self.listener is not None and (rank in self.members or isinstance(event, Exited)):
            self.listener(rank, event)
        elif isinstance(event, _OUTPUT):
            self._keep(rank, event)

    def _keep(self, rank: int, event: Written | Shown | Cleared) -> None:
        self.processes[rank].unread.append(event)
        self._unread_bytes += _size(event)

    def oom_killed(self) -> bool:
        """Whether the OOM killer has ended a process since the ranks started, or since the last call of this method."""
        before, self._oom_kills_before = self._oom_kills_before, _oom_kills()
        return self._oom_kills_before > before

    # Calls, one after the other

    @contextlib.contextmanager
    def calling(
        self, members: Collection[int], payload: Payload, listener: Callable[[int, Event], object]
    ) -> Iterator[None]:
        """Sends a call to ranks. Until the end of the context, `listener` is called with their events."""
        others = set(range(self.size)).difference(members, self.exited)
        self.call(members, payload)
        self.loop.unthrottle()
        self.members, self.listener = members, listener
        for rank in others:
            self.pause(rank)
        try:
            for rank in members:
                process = self.processes[rank]
                unread, process.unread = process.unread, []
                self._unread_bytes -= sum(map(_size, unread))
                for event in (*process.latest, *unread):
                    listener(rank, event)
            yield
        finally:
            self.listener = None
            for rank in others:
                self.resume(rank)

    def call_idle(self, rank: int, payload: Payload, seconds: float) -> Blobs | None:
        """Calls a function on an idle rank, aside from jobs. What the rank writes is shown by its next call.

        Returns:
            The pickled value; `None` if the call failed, or was interrupted after `seconds`.
        """
        process, answers = self.processes[rank], list[Blobs]()

        def listen(sender: int, event: Event) -> None:
            if isinstance(event, _OUTPUT):
                self._keep(sender, event)
            elif isinstance(event, Returned) and sender == rank:
                answers.append(event.value)

        self.call([rank], payload)
        self.loop.unthrottle()
        self.members, self.listener = range(self.size), listen
        try:
            for step in (signal.SIGINT, None):
                deadline = time.monotonic() + (seconds if step else _INTERRUPT_TIMEOUT)
                while process.life is Life.BUSY and (left := deadline - time.monotonic()) > 0:
                    self.loop.run_once(left)
                if step and process.life is Life.BUSY:
                    self.signal(rank, step)
        finally:
            self.listener = None
        return answers[0] if answers else None

    def catch_up(self) -> None:
        """Handles late answers and exits of ranks since the last call ended.

        Raises:
            LaunchError: The process that starts the ranks has ended.
        """
        self.loop.unthrottle()
        while self.loop.run_once(0) and self._unread_bytes < _MAX_UNREAD:
            pass

    def stop(self) -> None:
        """Lets idle ranks exit normally, with their exit handlers; then kills the rest and frees all resources."""
        self.finish(range(self.size))
        deadline = time.monotonic() + _EXIT_TIMEOUT
        with contextlib.suppress(Exception):
            while len(self.exited) < self.size and not self.busy and (left := deadline - time.monotonic()) > 0:
                self.loop.unthrottle()
                self.loop.run_once(left)
        self.close()


def _raise(error: LaunchError) -> None:
    raise error


def _size(event: Written | Shown | Cleared) -> int:
    if isinstance(event, Cleared):
        return 1
    return sum(map(len, event.data if isinstance(event, Written) else event.bundle))


def _oom_kills() -> int:
    """How many processes the OOM killer has ended since the system booted."""
    try:
        with open("/proc/vmstat", "rb", buffering=0) as file:
            found = re.search(rb"^oom_kill (\d+)", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
