"""The channel thread: the second thread of a rank, which owns its channel. It is the same for calls and for scripts."""

from __future__ import annotations

import contextlib
import queue
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

from notebook_accel import events
from notebook_accel.errors import StreamError
from notebook_accel.events import (
    Answer,
    Bar,
    CollectivesRequested,
    Control,
    Controlled,
    Event,
    Exited,
    Failed,
    InputRequested,
    ItemsGiven,
    Metrics,
    NameAnswered,
    PhaseChanged,
    ProfileRequested,
    Reports,
    Returned,
    SamplesRequested,
    Stacks,
    StacksRequested,
    StepPromised,
    StepRequested,
    from_wire,
    to_wire,
)
from notebook_accel.launch.rank import flight_recorder
from notebook_accel.launch.rank.coalescer import Coalescer
from notebook_accel.launch.rank.debug_adapter import hide_thread
from notebook_accel.launch.rank.energy import Energy
from notebook_accel.launch.rank.memory import Memory
from notebook_accel.launch.rank.out_of_memory import Growth
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.rank.stacks.collective_wait import WaitDetector
from notebook_accel.launch.rank.stacks.hot_lines import HotLines
from notebook_accel.launch.rank.stacks.imports import ImportDetector
from notebook_accel.launch.rank.stacks.stack_profile import StackProfiles
from notebook_accel.launch.rank.step_profiles import StepProfiles
from notebook_accel.launch.rank.training_control import TrainingControl
from notebook_accel.launch.wire.constants import REPORT_INTERVAL
from notebook_accel.launch.wire.event_loop import Wakeup
from notebook_accel.launch.wire.stack_frames import CHANNEL_THREAD, CHANNEL_THREAD_NAME, named_in_dumps
from notebook_accel.launch.wire.stream import Channel, Message

_MOST_EVENTS = 500
"""The most events that share one frame on the socket, so that no frame gets too long."""
_LIVENESS_INTERVAL = 1.0
"""Seconds after which who waits for this thread looks whether it still runs."""


class ChannelThread:
    """Sends what the rank emits, samples its memory and collective waits, and receives what is sent to it.

    Python raises an interrupt only in the main thread, so it cannot cut a message in two.

    Args:
        channel: The channel to the driver.
        heartbeat: The least seconds between two samples of the memory.
        pace: Seconds between two reports of bars and metrics.
        isolated: Whether all threads of this process belong to the rank.
        on_message: Receives each request that this class does not answer, with the message that it came in.
        on_close: Called when nothing more can be received, and when the thread ends.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        heartbeat: float = REPORT_INTERVAL,
        pace: float = REPORT_INTERVAL,
        isolated: bool = True,
        on_message: Callable[[Event, Message], None] = lambda request, message: None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._channel = channel
        self._isolated = isolated
        self._on_message = on_message
        self._on_close = on_close
        self._outbox: queue.SimpleQueue[tuple[Event | threading.Event, Sequence[int], bool]] = queue.SimpleQueue()
        self._send_lock = threading.Lock()
        self._wakeup = Wakeup()
        self._sources = select.poll()  # `select.select` fails beyond 1,024 open files
        for source in (channel, self._wakeup):
            self._sources.register(source, select.POLLIN)
        self._is_finishing = False
        self._coalescer = Coalescer(pace)
        self._heartbeat = heartbeat
        self._memory = Memory(heartbeat)
        self._energy = Energy()
        self._timeout = min(heartbeat, REPORT_INTERVAL)
        self._main_ident = 0
        self._wait_detector = WaitDetector(0)
        self._imports = ImportDetector(lambda: self._memory.phase)
        self._hot_lines = HotLines()
        self._profiles = StackProfiles(0)
        self._step_profiles = StepProfiles(0, self.emit)
        self._control = TrainingControl(self.emit, lambda: self._step_profiles.arm())
        self._thread = threading.Thread(target=self._run, name=CHANNEL_THREAD_NAME, daemon=True)
        hide_thread(self._thread)
        self.is_running = False
        """Whether the user's code runs, so that it may wait in a collective."""
        self.failed = False
        """Set for each call by its rank; here, if its result cannot be sent or the thread fails."""

    def start(self) -> None:
        """Starts the thread, for the user's code on the thread that calls this, and takes its events from then on."""
        self._main_ident = threading.get_ident()
        self._memory = Memory(self._heartbeat, Growth(self._main_ident))
        self._wait_detector = WaitDetector(self._main_ident, on_sample=self._on_sample)
        self._profiles = StackProfiles(self._main_ident)
        self._step_profiles = StepProfiles(self._main_ident, self.emit)
        events.set_sink(self.emit, self._coalescer.add_metrics, self._control, self.wait_until_sent)
        self._thread.start()  # which removes the sink as it ends, be it at once

    def emit(self, event: Event, fds: Sequence[int] = (), *, at_once: bool = True) -> None:
        """Queues an event.

        Args:
            event: The event.
            fds: Descriptors that go with it.
            at_once: Whether to wake the thread up. A phase that does not is left out once the call has ended.
        """
        if isinstance(event, (Metrics, Bar)):
            self._coalescer.add(event)
            return
        if isinstance(event, PhaseChanged):
            self._memory.phase = event.phase
        self._outbox.put((event, fds, at_once))
        if at_once:
            self._wakeup.wake()

    def wait_until_sent(self) -> None:
        """Returns once what was emitted before has been sent, or can't be."""
        sent = threading.Event()
        self._outbox.put((sent, (), True))
        self._wakeup.wake()
        while not sent.wait(_LIVENESS_INTERVAL) and self._thread.is_alive():
            pass

    def flush(self) -> None:
        """Sends everything that is queued, on either thread: after a call the main thread does it, to save a wakeup.

        Raises:
            ConnectionError: The other end has closed the channel.
        """
        now = time.monotonic()
        with self._send_lock:
            queued = []
            while not self._outbox.empty():
                queued.append(self._outbox.get())
            is_awaited = any(isinstance(event, threading.Event) for event, _, _ in queued)
            self._send_together(self._coalescer.take_all(now) if is_awaited else self._coalescer.take(now))
            if self.is_running:
                self._send_together(self._wait_detector.sample(now))
                self._send_together(self._imports.take())
            is_over = any(isinstance(event, (Returned, Failed)) for event, _, _ in queued)
            for event, fds, at_once in queued:
                if isinstance(event, threading.Event):
                    event.set()
                elif at_once or not (is_over and isinstance(event, PhaseChanged)):
                    self._send(event, fds)

    def on_call_end(self) -> None:
        """Ends what the call has begun on its own thread, which calls this, before what became of the call is sent."""
        self._step_profiles.on_call_end()
        self._control.on_call_end()
        self._memory.on_call_end()
        for event in self._energy.on_call_end(time.monotonic()):
            self.emit(event, at_once=False)

    def finish(self) -> None:
        """Stops receiving events, and returns once those that are queued have been sent."""
        events.set_sink(None)
        self._is_finishing = True
        self._wakeup.wake()
        self._thread.join()

    def close(self) -> None:
        """Closes the channel, after `finish`."""
        self._channel.close()
        self._wakeup.close()

    @named_in_dumps(CHANNEL_THREAD)
    def _run(self) -> None:
        """The thread's loop."""
        try:
            with contextlib.suppress(ConnectionError):  # the other end has closed the channel
                while not (self._is_finishing and self._outbox.empty()):
                    self._poll()
        except BaseException:
            self.failed = True  # nothing more can be sent, so only the exit code can report it
            raise
        finally:
            events.set_sink(None)
            events.answers(Answer).put(Answer(None))
            events.answers(NameAnswered).put(NameAnswered(""))
            self._on_close()

    def _poll(self) -> None:
        """Waits for the channel, a wakeup or the next sample; receives, samples and sends."""
        channel_fd, wakeup_fd = self._channel.fileno(), self._wakeup.fileno()
        timeout = self._profiles.time_to_next(time.monotonic(), self._timeout)
        readable = [fd for fd, _ in self._sources.poll(timeout * 1000)]
        with self._send_lock:  # first: whatever lets the GIL go lets the main thread move on from where it was
            self._send_together(self._profiles.sample(time.monotonic()))
        self._step_profiles.poll(time.monotonic())
        if not readable:
            self._send_together(self._memory.sample(time.monotonic()))
            if self.is_running:
                self._send_together(self._energy.sample(time.monotonic()))
        if wakeup_fd in readable:
            self._wakeup.clear()
        self.flush()
        if channel_fd in readable:
            self._on_messages(self._channel.receive(wait=True))

    def _on_sample(self, thread: int, frame: FrameType) -> None:
        self._hot_lines.add(thread, frame)
        self._imports.add(frame)

    def _on_messages(self, messages: list[Message] | None) -> None:
        for message in messages or ():
            request = from_wire(message.header, message.blobs)
            if isinstance(request, StacksRequested):
                found = stack_sampler.threads(self._main_ident, all_of_them=self._isolated)
                self._send_together([Stacks(request.number, found)])
            elif isinstance(request, SamplesRequested):
                self._profiles.begin(request, time.monotonic())
            elif isinstance(request, CollectivesRequested):
                self._send_together([flight_recorder.last(request)])
            elif isinstance(request, ProfileRequested):
                self._step_profiles.begin(request, time.monotonic())
                if request.step >= 0:
                    self._control.profile_after(request.step)
            elif isinstance(request, (StepRequested, Control)):
                self._on_control(request)
            elif isinstance(request, (Answer, ItemsGiven, NameAnswered)):
                events.answers(type(request)).put(request)
            else:
                self._on_message(request, message)
        if messages is None:
            self._sources.unregister(self._channel)
            self._on_close()

    def _on_control(self, request: StepRequested | Control) -> None:
        if isinstance(request, StepRequested):
            if self.is_running:
                self._control.promise(request)
            else:
                self.emit(StepPromised(request.number))
        elif self.is_running:
            self._control.command(request)
        else:
            self.emit(Controlled(request.number, request.action))

    def _send(self, event: Event, fds: Sequence[int]) -> None:
        if isinstance(event, (Returned, Failed, Exited, InputRequested)):
            self._send_together(self._coalescer.take_all(time.monotonic()))  # what comes next is shown with it
        if isinstance(event, (Returned, Failed, Exited)):
            self._send_together(events.last_step_times())
            self._send_together(self._profiles.finish())
        if isinstance(event, (Returned, Failed)):
            self._wait_detector.reset()
            self._imports.reset()
        try:
            self._channel.send(*to_wire(event), fds)
        except StreamError as error:
            self._send_instead(event, error)

    def _send_together(self, events: Iterable[Event]) -> None:
        """Sends events, those without binary parts many in a frame."""
        batch: list[Event] = []
        for event in events:
            if isinstance(event, Reports):
                self._send_reports(event)
                continue
            batch.append(event)
            if len(batch) == _MOST_EVENTS:
                self._send_batch(batch)
                batch = []
        self._send_batch(batch)

    def _send_reports(self, reports: Reports) -> None:
        try:
            self._channel.send(*to_wire(reports))
        except StreamError as error:
            if reports.count == 1:
                self._send_instead(reports, error)
            else:  # a name is too long: only its own report is left out
                for row in reports.rows():
                    self._send_reports(next(Reports.pack([row])))

    def _send_batch(self, batch: Sequence[Event]) -> None:
        try:
            self._channel.send_together([to_wire(event)[0] for event in batch])
        except StreamError:
            for event in batch:
                self._send(event, ())

    def _send_instead(self, event: Event, error: StreamError) -> None:
        """Replaces a message that is too long, so that neither the driver nor the user's code waits for it forever."""
        if isinstance(event, (Returned, Failed)):
            from notebook_accel.launch.rank import exceptions  # a script needs it only if it fails

            self.failed = True
            self._channel.send(*to_wire(exceptions.too_long(event, error)))
            return
        with contextlib.suppress(Exception):
            sys.stderr.write(f"notebook-accel: a {event.kind!r} message of this rank is left out: {error}\n")
        if isinstance(event, InputRequested):
            events.answers(Answer).put(Answer(None))
