"""A started group of ranks: the state of each across calls, and its end."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator

from notebook_accel.errors import LaunchError
from notebook_accel.events import Blobs, Cleared, Event, Exited, Failed, Heartbeat, Hello, Returned, Shown, Written
from notebook_accel.launch.engines.contract import Engine, GroupSpec
from notebook_accel.launch.wire.event_loop import EventLoop
from notebook_accel.launch.wire.payload import Payload

_EXIT_TIMEOUT = 2.0
"""How many seconds ranks have to exit by themselves and run their exit handlers."""
_INTERRUPT_TIMEOUT = 0.2
"""Seconds to wait for a rank to end a call of `call_idle` that was interrupted."""
_OUTPUT = (Written, Shown, Cleared)
_MAX_UNREAD = 16 * 2**20
"""Bytes of output that are read between two calls: a thread of a rank may write forever."""


class RankGroup:
    """A group of ranks, from its start to its end. One call runs on it at a time, by a `CallRunner`.

    Args:
        engine: Starts the ranks.
        spec: The ranks to start.

    Raises:
        LaunchError: They cannot be started.
    """

    def __init__(self, engine: Engine, spec: GroupSpec) -> None:
        self.size = spec.size
        self.loop = EventLoop()
        self.busy: set[int] = set()
        """Ranks that have been sent a call but have not answered."""
        self.exited: dict[int, Exited] = {}
        """Ranks that have exited."""
        self.is_debugged = False
        """Whether the notebook's debugger has been configured on ranks."""
        self._hellos: dict[int, Hello] = {}
        self._heartbeats: dict[int, Heartbeat] = {}
        self._unread: defaultdict[int, list[Written | Shown | Cleared]] = defaultdict(list)
        """What ranks have written and displayed while no call read it."""
        self._unread_bytes = 0
        self._members: Collection[int] = ()
        """The ranks of the current call."""
        self._answers: dict[int, Blobs] | None = None
        """What ranks have returned since `call_idle` began; `None` at other times."""
        self._handler: Callable[[int, Event], object] | None = None
        self._oom_kills_before = _oom_kills()
        self._ports = spec.rendezvous.ports
        try:
            self.ranks = engine.start(spec, self.loop, self)
        except BaseException:
            self._ports.close()
            raise

    # As a listener of the ranks

    def on_event(self, rank: int, event: Event) -> None:
        """Records the part of a rank's event that outlasts the current call, and passes the event on to the call."""
        if isinstance(event, Hello):
            self._hellos[rank] = event
        elif isinstance(event, Heartbeat):
            self._heartbeats[rank] = event
        elif isinstance(event, Exited):
            self.exited[rank] = event
            self.busy.discard(rank)
        elif isinstance(event, (Returned, Failed)):
            self.busy.discard(rank)
            if self._answers is not None and isinstance(event, Returned):
                self._answers[rank] = event.value
        if self._handler is not None and (rank in self._members or isinstance(event, Exited)):
            self._handler(rank, event)
        elif isinstance(event, _OUTPUT):
            self._unread[rank].append(event)
            self._unread_bytes += _size(event)

    def on_failure(self, error: LaunchError) -> None:
        raise error

    # Calls

    @contextlib.contextmanager
    def calling(
        self, members: Collection[int], payload: Payload, handler: Callable[[int, Event], object]
    ) -> Iterator[None]:
        """Sends a call to ranks. Until the end of the context, `handler` is called with their events."""
        others = set(range(self.size)).difference(members, self.exited)
        self.busy.update(members)
        self.ranks.call(members, payload)
        self.loop.unthrottle()
        self._members, self._handler = members, handler
        for rank in others:
            self.ranks.pause(rank)
        try:
            for rank in members:
                unread = self._unread.pop(rank, [])
                self._unread_bytes -= sum(map(_size, unread))
                for event in (*self.last_events(rank), *unread):
                    handler(rank, event)
            yield
        finally:
            self._handler = None
            for rank in others:
                self.ranks.resume(rank)

    @property
    def is_called(self) -> bool:
        """Whether a call runs."""
        return self._handler is not None

    def call_idle(self, rank: int, payload: Payload, seconds: float) -> Blobs | None:
        """Calls a function on an idle rank, aside from jobs. What the rank writes is shown by its next call.

        Returns:
            The pickled value; `None` if the call failed, or was interrupted after `seconds`.
        """
        self.busy.add(rank)
        self._answers = {}
        self.ranks.call([rank], payload)
        self.loop.unthrottle()
        for step in (signal.SIGINT, None):
            deadline = time.monotonic() + (seconds if step else _INTERRUPT_TIMEOUT)
            while rank in self.busy and (left := deadline - time.monotonic()) > 0:
                self.loop.run_once(left)
            if step and rank in self.busy:
                self.ranks.signal(rank, step)
        answers, self._answers = self._answers, None
        return answers.get(rank)

    def catch_up(self) -> None:
        """Handles late answers and exits of ranks since the last call ended.

        Raises:
            LaunchError: The process that starts the ranks has ended.
        """
        self.loop.unthrottle()
        while self.loop.run_once(0) and self._unread_bytes < _MAX_UNREAD:
            pass

    def last_events(self, rank: int) -> Iterator[Event]:
        """The events of earlier calls that a new call's job starts from."""
        yield from (latest[rank] for latest in (self._hellos, self._heartbeats, self.exited) if rank in latest)

    def oom_killed(self) -> bool:
        """Whether the OOM killer has ended a process since the ranks started, or since the last call of this method."""
        before, self._oom_kills_before = self._oom_kills_before, _oom_kills()
        return self._oom_kills_before > before

    # The end

    def stop(self) -> None:
        """Lets idle ranks exit normally, with their exit handlers; then kills the rest and frees all resources."""
        self.ranks.finish(range(self.size))
        deadline = time.monotonic() + _EXIT_TIMEOUT
        with contextlib.suppress(Exception):
            while len(self.exited) < self.size and not self.busy and (left := deadline - time.monotonic()) > 0:
                self.loop.unthrottle()
                self.loop.run_once(left)
        self.close()

    def close(self) -> None:
        """Kills the remaining ranks and frees all resources."""
        self.ranks.close()
        self._ports.close()


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
