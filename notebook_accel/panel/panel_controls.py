"""The panel's buttons that pause, save, end and inspect a training run, and its fields that tune values and stop it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from notebook_accel.errors import LaunchError, NotebookAccelError
from notebook_accel.events import TunableChanged
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE, RESUME, TUNE
from notebook_accel.launch.job import progress, rules
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.system import own_process
from notebook_accel.panel.panel_model import Command, Controls, Field

FLAMEGRAPH, PROFILE, STOP_WHEN = "flamegraph", "profile", "stop when"
_SECONDS, _STEPS = 5, 5
"""How long the flame graph samples, and how many steps the profile has."""
_LABELS = {
    PAUSE: ("Pause", "Pause the training after this step"),
    RESUME: ("Resume", "Continue the training"),
    CHECKPOINT: ("Save checkpoint", "Save a checkpoint after one of the next steps"),
    END_AFTER_EPOCH: ("End after epoch", "End the training after the current epoch"),
    FLAMEGRAPH: (
        "Flame graph",
        f"Show in the Profile tab which lines take the time, from samples of the next {_SECONDS} s",
    ),
    PROFILE: (
        "Profile",
        f"Show in the Profile tab what the next {_STEPS} steps spend their time on, with torch's profiler",
    ),
}
_BUSY = {
    PAUSE: "Pausing after this step…",
    RESUME: "Resuming…",
    CHECKPOINT: "Saving a checkpoint…",
    END_AFTER_EPOCH: "Ending after this epoch…",
    FLAMEGRAPH: f"Sampling for {_SECONDS} s…",
    PROFILE: f"Profiling {_STEPS} steps…",
    STOP_WHEN: "Changing the rules…",
}
_STOP_HINT = "Conditions that stop the job, such as loss > 10 or loss is NaN. Empty: none"


class PanelControls:
    """Does what a browser requests, and says what can be requested."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._feedback = ""
        self._inspecting = ""
        """The flame graph or profile that is being made."""
        self._pending: set[str] = set()
        """What was requested and is not done yet: a second click requests nothing more."""
        self._results: deque[Any] = deque()

    @property
    def is_inspecting(self) -> bool:
        """Whether a flame graph or a profile is being made, or hasn't been taken yet."""
        return bool(self._inspecting or self._results)

    def take_results(self) -> Iterator[Any]:
        """Yields the flame graphs and profiles that are ready, for the view to show."""
        while self._results:
            yield self._results.popleft()

    def request(self, message: Mapping[str, Any]) -> None:
        """Begins what the browser requests, as `{"cmd": "control", "action": "tune", "name": "lr", "value": "0.1"}`.

        Any thread may call it; it does not wait.
        """
        action = message.get("action")
        values: dict[str, float] = {}
        if action == TUNE:
            name, given = str(message.get("name")), str(message.get("value"))
            try:
                values[name] = _number(given, whole=name in self._job.tunables and self._job.tunables[name].whole)
            except ValueError:
                self._feedback = f"{name}={given!r} is not a finite number" if given else f"{name} needs a number"
                return
            self._feedback = f"Changing {name} after this step…"
        elif action in (FLAMEGRAPH, PROFILE):
            if self._inspecting:
                return
            self._inspecting, self._feedback = action, _BUSY[action]
        elif action in _BUSY:
            if action in self._pending:
                return
            self._pending.add(action)
            self._feedback = _BUSY[action]
        else:
            return
        call = self._calls(values, str(message.get("value")))[action]
        try:
            own_process.start_thread(partial(self._run, action, call), "panel control")
        except LaunchError as error:
            self._finish(action, str(error))

    def state(self) -> Controls:
        """What the panel shows."""
        if self._job.status.ended:
            return {"commands": [], "fields": [], "feedback": ""}
        fields = [*map(_tunable, self._job.tunables.values()), *self._stop_field()]
        # What is there from the start is first, so that what comes later moves no button under the user's pointer.
        commands = [*self._inspections(), *self._training()]
        return {"commands": commands, "fields": fields, "feedback": self._feedback}

    def _training(self) -> list[Command]:
        """The buttons of a training run that uses an `Accelerator`."""
        found = self._job.controls
        if found is None:
            return []
        refusals = {
            action: f"{_LABELS[action][0]} isn't available: {why}" for action, why in found.refusals.items() if why
        }
        first = PAUSE
        if self._job.is_paused:
            first = RESUME
            refusals[CHECKPOINT] = refusals.get(CHECKPOINT) or "Resume to save a checkpoint"
        return [_command(action, refusals.get(action, "")) for action in (first, CHECKPOINT, END_AFTER_EPOCH)]

    def _inspections(self) -> list[Command]:
        """The buttons of any job."""
        refusal = "Wait until the previous one is ready" if self._inspecting else ""
        return [_command(action, refusal) for action in (FLAMEGRAPH, PROFILE)]

    def _stop_field(self) -> list[Field]:
        """The conditions that stop a job, if it reports metrics."""
        conditions = rules.stop_conditions(self._job)
        metric = progress.main_metric(progress.metric_names(self._job))
        if not conditions and metric is None:
            return []
        field: Field = {
            "action": STOP_WHEN,
            "name": "Stop when",
            "value": conditions,
            "hint": _STOP_HINT,
            "example": f"{metric or 'loss'} is NaN",
            "step": "",
        }
        return [field]

    def _calls(self, values: Mapping[str, float], text: str) -> dict[str, Callable[[], object]]:
        job = self._job
        return {
            PAUSE: job.pause,
            RESUME: job.resume,
            CHECKPOINT: job.checkpoint,
            END_AFTER_EPOCH: job.end_after_epoch,
            TUNE: lambda: job.tune(**values),
            STOP_WHEN: lambda: rules.stop_when(job, text),
            FLAMEGRAPH: lambda: self._results.append(job.flamegraph(_SECONDS)),
            PROFILE: lambda: self._results.append(job.profile(_STEPS)),
        }

    def _run(self, action: str, call: Callable[[], object]) -> None:
        feedback = ""
        try:
            call()
        except (NotebookAccelError, TimeoutError) as error:
            feedback = str(error)
        finally:
            self._finish(action, feedback)

    def _finish(self, action: str, feedback: str) -> None:
        self._pending.discard(action)
        if self._inspecting == action:
            self._inspecting = ""
        self._feedback = feedback  # empty if it was done, which is then among the job's changes


def _command(action: str, refusal: str) -> Command:
    label, hint = _LABELS[action]
    return {"action": action, "label": label, "hint": refusal or hint, "possible": not refusal}


def _tunable(tunable: TunableChanged) -> Field:
    low, high = ("" if each is None else f"{each:g}" for each in (tunable.low, tunable.high))
    limits = (
        f"from {low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}" if high else ""
    )
    step = "1" if tunable.whole else "any"
    return {
        "action": TUNE,
        "name": tunable.name,
        "value": f"{tunable.value:g}",
        "hint": limits,
        "example": "",
        "step": step,
    }


def _number(text: str, *, whole: bool) -> float:
    """The number that the user has typed.

    Raises:
        ValueError: It is not a finite number.
    """
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return int(found) if whole and found == int(found) else found
