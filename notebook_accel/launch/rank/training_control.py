"""Pauses and changes the training on one rank, after the same step as on the others; see `events/control.py`.

A step costs a counter and a comparison. The thread that trains counts its steps without a lock, so the channel thread
sets `_is_wanted` before it reads the counter, and the thread that trains looks at it after it has counted: either that
thread stops at this step, or the step that is promised lies ahead of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from notebook_accel import events
from notebook_accel.events import (
    Control,
    Controlled,
    ControlsChanged,
    Event,
    Phase,
    PhaseChanged,
    StepPromised,
    StepRequested,
    training_step,
)
from notebook_accel.events.control import (
    CHECKPOINT,
    END_AFTER_EPOCH,
    PAUSE,
    PROFILE,
    RESUME,
    TUNE,
    WITHDRAW,
    CountedOptimizer,
)
from notebook_accel.events.emit import ControlledLoop, ControlledTunable
from notebook_accel.launch.rank.patches import rich, tqdm

_LOOK = 0.2
"""Seconds between two looks of a thread that waits: an interrupt reaches a rank that is a thread only in between."""
_NO_ACCELERATOR = "that takes effect after a step of an optimizer that an Accelerator has prepared, and no rank has one"
_NO_LOOP = "it isn't in a loop over accelerator.epochs()"
_PAUSED = "it is paused already"
_ENDED = "its function ended before the next step"


class TrainingControl:
    """A `StepControl`.

    Args:
        send: Sends an event to the driver. Any thread may call it.
        start_profile: Called at the step after which the profile of a `ProfileRequested` begins.
    """

    def __init__(self, send: Callable[[Event], object], start_profile: Callable[[], object] = lambda: None) -> None:
        self._send = send
        self._start_profile = start_profile
        self._changed = threading.Condition()
        self._reset()

    def _reset(self) -> None:
        self.loop: ControlledLoop | None = None
        self.is_paused = False
        self.paused_seconds = 0.0
        self._tunables: dict[str, ControlledTunable] = {}
        self._is_attached = False
        self._refused = ""
        self._reported: Mapping[str, str] = {}
        self._passed = 0
        """Steps of this call."""
        self._counted = CountedOptimizer()
        self._is_wanted = False
        """Whether the thread that trains has to look for a promise, a command, or a pause."""
        self._promised: int | None = None
        self._pending: list[Control] = []
        self._paused_at: float | None = None
        """Until the thread that trains has gone on."""

    # What the training calls, on its thread

    def attach(self, refusal: str) -> None:
        """Records that prepared optimizers step here; `refusal`: why it can't be controlled nonetheless."""
        self._is_attached, self._refused = True, refusal
        self.refresh()

    def add(self, tunable: ControlledTunable) -> None:
        """Makes a value known that can be tuned."""
        self._tunables[tunable.state.name] = tunable
        self._send(tunable.state)

    def refresh(self) -> None:
        """Reports what can be done if that has changed."""
        found = {action: self._refusal(action, {}) for action in (PAUSE, CHECKPOINT, END_AFTER_EPOCH)}
        if self._is_attached and found != self._reported:
            self._reported = found
            self._send(ControlsChanged(found))

    def on_step(self, optimizer: object) -> None:
        """An optimizer has stepped. Here the training waits, and is changed, if that is wanted."""
        if not self._counted.ends_step(optimizer):
            return
        self._passed += 1
        if self._is_wanted:
            while (command := self._next_command()) is not None:
                self._run(command)

    def on_call_end(self) -> None:
        """Answers what can no longer be done."""
        with self._changed:
            pending = self._pending
            self._reset()
        for command in pending:
            if command.action != PROFILE:
                self._send(Controlled(command.number, command.action, error=_ENDED))

    # On the channel thread

    def promise(self, request: StepRequested) -> None:
        """Promises not to go beyond a step without a command."""
        error = self._refusal(request.action, request.values)
        if error:
            self._send(StepPromised(request.number, error=error))
            return
        with self._changed:
            self._is_wanted = True  # first: see above
            if self.is_paused:
                step = self._passed
            else:
                pauses = [command.step for command in self._pending if command.action == PAUSE]
                step = self._promised = min(pauses, default=self._passed + 1)
        self._send(StepPromised(request.number, step))

    def command(self, command: Control) -> None:
        """Takes a command; the thread that trains runs it, unless it is to resume, or to withdraw a request."""
        dropped: list[Control] = []
        error = ""
        with self._changed:
            self._promised = None
            if command.action == RESUME:
                dropped = [each for each in self._pending if each.action == PAUSE]
                self._pending = [each for each in self._pending if each.action != PAUSE]
                error = "" if self.is_paused or dropped else "it is not paused"
                self.is_paused = False
            elif command.action != WITHDRAW and self._is_attached:
                self._pending.append(command)
            elif command.action != WITHDRAW:
                dropped, error = [command], _ENDED  # the call ended after the promise
            self._changed.notify_all()
        if command.action in (RESUME, WITHDRAW):
            self._reply(command, error=error)
        for each in dropped:
            self._reply(each, error=error or "it was resumed before that step")

    def profile_after(self, step: int) -> None:
        """Has the profile started after the step that was promised, or that another rank promised; see `promise`."""
        with self._changed:
            self._promised = None
            if self._is_attached:
                self._pending.append(Control(0, PROFILE, step=step))
            self._changed.notify_all()
            is_attached = self._is_attached
        if not is_attached:  # the call ended after the promise
            self._start_profile()

    def _refusal(self, action: str, values: Mapping[str, float]) -> str:
        """Why the training can't be controlled so now; empty if it can."""
        if not self._is_attached:
            return _NO_ACCELERATOR
        if self._refused:
            return self._refused
        if action == PAUSE:
            return _PAUSED if self.is_paused else ""
        if action == TUNE:
            return self._tuning_refusal(values)
        if action == PROFILE:
            return ""
        if self.loop is None:
            return _NO_LOOP
        if action == CHECKPOINT and self.is_paused:
            return "it is paused; resume it to save a checkpoint"
        return self.loop.refusals.get(action, "")

    def _tuning_refusal(self, values: Mapping[str, float]) -> str:
        for name, value in values.items():
            tunable = self._tunables.get(name)
            if tunable is None:
                known = ", ".join(self._tunables) or "none: accelerator.tunable(name, value) makes one"
                return f"it has no tunable value {name!r}; it has {known}"
            if refusal := tunable.refusal(value):
                return refusal
        return ""

    # On the thread that trains

    def _next_command(self) -> Control | None:
        """The next command for this step; waits while a promise holds, or the training is paused."""
        with self._changed:
            while True:
                if self._paused_at is not None and not self.is_paused:
                    self._go_on(self._paused_at)
                for command in self._pending:
                    if command.step <= self._passed:
                        self._pending.remove(command)
                        return command
                is_promised = self._promised is not None and self._passed >= self._promised
                if not (is_promised or self.is_paused):
                    self._is_wanted = bool(self._pending) or self._promised is not None
                    return None
                self._changed.wait(_LOOK)
                if self.is_paused and self.loop is not None and self.loop.must_run():
                    self.is_paused = False

    def _run(self, command: Control) -> None:
        if command.action == PAUSE and self.is_paused:
            self._reply(command, error=_PAUSED)  # by another request, which came before this step
        elif command.action == PAUSE:
            self._paused_at = time.monotonic()
            with self._changed:
                self.is_paused = True
            self._send(PhaseChanged(Phase.PAUSED, f"after step {self._step()}"))
            self._reply(command)
        elif command.action == TUNE:
            self._tune(command)
        elif command.action == PROFILE:
            self._start_profile()
        elif self.loop is None:
            self._reply(command, error=_NO_LOOP)  # it has ended since then
        elif command.action == CHECKPOINT:
            self.loop.request_checkpoint(lambda path, error: self._reply(command, error=error, detail=path))
        else:
            assert command.action == END_AFTER_EPOCH
            self._reply(command, detail=self.loop.end_after_epoch())

    def _go_on(self, paused_at: float) -> None:
        seconds = time.monotonic() - paused_at
        self._paused_at = None
        self.paused_seconds += seconds
        skip(seconds)
        self._send(PhaseChanged(Phase.RUNNING))

    def _tune(self, command: Control) -> None:
        """Sets all the values, or none if one of them is refused."""
        before: dict[str, float] = {}
        try:
            for name, value in command.values.items():
                tunable = self._tunables[name]
                before[name] = tunable.state.value
                tunable.set(value)
        except Exception as error:  # of the user's own function, which must not end the training
            for name, value in before.items():
                self._tunables[name].restore(value)
            self._reply(command, error=f"on_change failed with {type(error).__name__}: {error}")
            return
        after = {name: self._tunables[name].state.value for name in before}
        for name in after:
            self._send(self._tunables[name].state)
        self._reply(command, before=before, values=after)

    def _step(self) -> int:
        """The steps that the training has done. The loop over epochs counts the one that ends here only later."""
        done = training_step() if self.loop is not None else None
        return self._passed if done is None else done + 1

    def _reply(
        self,
        command: Control,
        *,
        error: str = "",
        detail: str = "",
        before: Mapping[str, float] | None = None,
        values: Mapping[str, float] | None = None,
    ) -> None:
        reply = Controlled(
            command.number, command.action, self._step(), error, detail, before or {}, values or {}, time.time()
        )
        self._send(reply)


def skip(seconds: float) -> None:
    """Has the clocks of this rank continue as if the last seconds had not passed. Called on the thread that trains."""
    clock = events.step_clock()
    if clock is not None:
        clock.skip()
    tqdm.skip(seconds)
    rich.skip(seconds)
