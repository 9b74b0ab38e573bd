"""A rank: takes calls from its channel, runs them on the main thread, and emits what became of each."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import functools
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Set

from notebook_accel import garbage_collection, rank_local
from notebook_accel.events import (
    Call,
    DebugRequested,
    Disconnect,
    Event,
    Failed,
    Hello,
    Interrupt,
    Phase,
    PhaseChanged,
    Preempt,
    Returned,
)
from notebook_accel.events.emit import PREEMPTED_BY
from notebook_accel.launch.rank import disconnect, exceptions, forked_child, interrupts
from notebook_accel.launch.rank.channel_thread import ChannelThread
from notebook_accel.launch.rank.debug_adapter import Debugger
from notebook_accel.launch.rank.memory import Memory
from notebook_accel.launch.rank.patches import ipython
from notebook_accel.launch.system import memory, own_process
from notebook_accel.launch.wire import payload
from notebook_accel.launch.wire.constants import REPORT_INTERVAL, STACKS_SIGNAL
from notebook_accel.launch.wire.payload import Unpacked
from notebook_accel.launch.wire.stack_frames import MAIN_LOOP, named_in_dumps
from notebook_accel.launch.wire.stream import Channel, Message


class Rank:
    """Runs calls one after the other on the thread that calls `serve`; its channel thread does everything else."""

    def __init__(
        self,
        channel: Channel,
        heartbeat: float,
        *,
        isolated: bool = True,
        pace: float = REPORT_INTERVAL,
        calls_once: bool = False,
    ) -> None:
        self._calls_once = calls_once
        self._isolated = isolated
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """What the main loop runs."""
        self._channel_thread = ChannelThread(
            channel,
            heartbeat=heartbeat,
            pace=pace,
            isolated=isolated,
            on_message=self._on_message,
            on_close=lambda: self._tasks.put(None),
        )
        self._debugger = Debugger(self._channel_thread.emit)
        self._main_ident = 0
        self._calls_started = 0
        self.is_wanted = True
        """Whether further calls are run. Another thread may clear it; nothing sets it again."""

    @property
    def is_running(self) -> bool:
        """Whether a call is under way."""
        return self._channel_thread.is_running

    @property
    def failed(self) -> bool:
        """Whether the last call failed, or what became of it could not be sent."""
        return self._channel_thread.failed

    @named_in_dumps(MAIN_LOOP)
    def serve(self) -> None:
        """The main loop: sends `Hello`, and runs calls until the other end closes the channel."""
        self._main_ident = threading.get_ident()
        stacks_fd = _open_stacks_file() if self._isolated else None
        hello = Hello(os.getpid(), socket.gethostname())
        self._channel_thread.emit(hello, () if stacks_fd is None else (stacks_fd,))
        try:
            self._channel_thread.start()
        except RuntimeError as error:  # the system allows no further thread
            self._channel_thread.failed = True
            self._channel_thread.emit(exceptions.describe(error, "loading"))
            self._channel_thread.flush()
            return
        if self._isolated:
            interrupts.install()
        # The channel thread takes the signal instead, so that it interrupts no system call of the user's code. Not
        # elsewhere than on Linux: there it is SIGUSR2, which the user's code may use itself.
        if self._isolated and sys.platform == "linux":
            signal.pthread_sigmask(signal.SIG_BLOCK, {STACKS_SIGNAL})
        while (task := self._tasks.get()) is not None:
            if not self.is_wanted:
                break
            task()
        self._channel_thread.finish()

    def close(self) -> None:
        """Closes the channel, after `serve` has returned."""
        self._channel_thread.close()

    def submit(self, load: Callable[[], Unpacked]) -> None:
        """Queues a call for the main loop, which first runs `load` to unpickle it."""
        self._tasks.put(functools.partial(self._run_call, load))

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the call that is running, between two Python instructions of its thread.

        For a rank that is a thread, which no signal can reach.
        """
        if self.is_running:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._main_ident), ctypes.py_object(KeyboardInterrupt)
            )

    def _on_message(self, request: Event, message: Message) -> None:
        if isinstance(request, Disconnect):
            disconnect.disconnect()
        elif isinstance(request, Interrupt):
            self.interrupt()
        elif isinstance(request, Preempt):
            if PREEMPTED_BY in rank_local.space():
                rank_local.space()[PREEMPTED_BY] = request.reason
            elif self._isolated:
                os.kill(os.getpid(), signal.SIGINT)
            else:
                self.interrupt()
        elif isinstance(request, DebugRequested):
            self._on_debug_request(request)
        else:
            assert isinstance(request, Call)
            self.submit(functools.partial(payload.receive, message, request.layout))

    def _on_debug_request(self, request: DebugRequested) -> None:
        if not self._isolated:
            return  # its process is the notebook's, or has other ranks
        if request.before_call:
            self._tasks.put(functools.partial(self._debugger.configure, request))
        else:
            self._debugger.send(request.messages)

    def _run_call(self, load: Callable[[], Unpacked]) -> None:
        self._channel_thread.is_running = True
        try:
            if self._isolated:
                interrupts.allow()
            outcome = self._evaluate(load)
        except KeyboardInterrupt as error:  # it came between two stages of `_evaluate`
            outcome = exceptions.describe(error, "running")
        if self._isolated:
            interrupts.ignore()
        self._channel_thread.on_call_end()
        if self._calls_once:
            for event in Memory(0).sample(time.monotonic()):  # that of a short script was never sampled
                self._channel_thread.emit(event)
        own_process.flush()
        self._channel_thread.failed = isinstance(outcome, Failed)
        self._channel_thread.emit(outcome, at_once=not self._isolated)
        if self._isolated:
            # Interrupts are ignored from here on, so this thread can send by itself and save the other's wakeup.
            with contextlib.suppress(ConnectionError):  # the other end has closed the channel
                self._channel_thread.flush()
        self._channel_thread.is_running = False
        if self._calls_once:
            self._tasks.put(None)

    def _evaluate(self, load: Callable[[], Unpacked]) -> Returned | Failed:
        stage = "loading"
        sent: Set[str] = frozenset()
        self._calls_started += 1
        at_once = self._calls_started == 1  # later calls may end before the channel thread wakes up
        try:
            self._channel_thread.emit(PhaseChanged(Phase.LOADING), at_once=at_once)
            with garbage_collection.paused():  # modules may be imported
                call = load()
            sent = call.definitions
            self._channel_thread.emit(PhaseChanged(Phase.RUNNING), at_once=at_once)
            stage = "running"
            try:
                value = forked_child.call(call)
            finally:
                if self._isolated:
                    ipython.show_open_figures()
            stage = "returning"
            return Returned(payload.pack_value(value, call.definitions))
        except SystemExit as error:
            failure = exceptions.describe(error, stage, sent)
            return failure if failure.exit_code else Returned()
        except BaseException as error:
            failure = exceptions.describe(error, stage, sent)
            if error is not getattr(sys, "last_value", None):  # a post-mortem debugger needs its frames
                exceptions.release(error)
            return failure


def _open_stacks_file() -> int:
    """An unnamed file to which faulthandler writes the stacks on `STACKS_SIGNAL`, or when the process crashes.

    The kernel holds the same open file, and reads it after the process is gone.
    """
    fd = memory.new_file()
    faulthandler.enable(fd)
    faulthandler.register(STACKS_SIGNAL, fd)
    return fd
