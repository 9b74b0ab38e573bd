"""What a user does to a running training job: pause it, save a checkpoint, end it after an epoch, tune its values."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Control, Controlled, as_float
from notebook_accel.events.control import CHECKPOINT, END_AFTER_EPOCH, PAUSE, RESUME, TUNE
from notebook_accel.launch.job import requests, rules
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.requests import Answers, JobHandle, short_errors
from notebook_accel.launch.job.text import clock
from notebook_accel.rank_spans import counted, named

_LONGEST = 3600.0
_ACTIONS = {
    PAUSE: ("be paused", "It pauses after that step"),
    RESUME: ("be resumed", "It continues once they can"),
    CHECKPOINT: ("save a checkpoint now", "The checkpoint is saved once the training gets there"),
    END_AFTER_EPOCH: ("end after this epoch", "It ends after the epoch of that step"),
    TUNE: ("be tuned", "The values change after that step"),
}
"""For each action, what the job can or can't do, and what happens if its ranks don't get there in time."""
_MOST_CHANGES = 4


class AfterStep(int):
    """How many steps the training has done, which a notebook shows in words."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"after step {self:d}")


class ControlledJob(JobHandle):
    """A job whose training can be paused and changed, after the same step on all ranks.

    The training uses an `Accelerator`: a step ends when a prepared optimizer has stepped. Each method waits until all
    ranks have done it.
    """

    @short_errors
    def pause(self, *, timeout: float = 60.0) -> int:
        """Pauses training after the current step.

        Between two steps no collective runs, so that no timeout of torch ends the job, however long the pause; nor does
        that of the launch. The ranks keep their memory and their devices. Bars, the anatomy of a step and estimates
        leave the pause out. If the system is about to end the job, the training continues and saves its checkpoint.

        Args:
            timeout: Seconds to wait for that step to end, at most 3,600.

        Returns:
            After how many steps it is paused.

        Raises:
            ConfigurationError: It can't be paused: it doesn't use an `Accelerator`, or is paused already.
            JobEndedError: The job has ended.
            TimeoutError: The step has not ended in time; the training pauses when it does.
        """
        return AfterStep(control(self, PAUSE, timeout=timeout).step)

    @short_errors
    def resume(self) -> int:
        """Continues a paused training run.

        For a job that has ended before its training was finished, use `%accelerate resume`.

        Returns:
            How many steps it has done.

        Raises:
            ConfigurationError: It is not paused.
            JobEndedError: The job has ended.
        """
        return AfterStep(control(self, RESUME).step)

    @short_errors
    def checkpoint(self, *, timeout: float = 600.0) -> str:
        """Saves a checkpoint after one of the next steps, in the folder that the launch has for them.

        Args:
            timeout: Seconds to wait until it is written, at most 3,600.

        Returns:
            Its path.

        Raises:
            ConfigurationError: It can't be saved: training isn't in a loop over `Accelerator.epochs`, the launch has
                no folder for checkpoints, or the training is paused.
            JobEndedError: The job has ended.
            TimeoutError: It was not written in time; the training still saves it.
        """
        return control(self, CHECKPOINT, timeout=timeout).detail

    @short_errors
    def end_after_epoch(self, *, timeout: float = 60.0) -> str:
        """Ends the loop over `Accelerator.epochs` after the current epoch; the function then continues below the loop.

        Args:
            timeout: Seconds to wait for a step to end, at most 3,600.

        Returns:
            The last epoch: `epoch 3 of 10`.

        Raises:
            ConfigurationError: The training is in no such loop.
            JobEndedError: The job has ended.
            TimeoutError: No step has ended in time; the request stands.
        """
        return control(self, END_AFTER_EPOCH, timeout=timeout).detail

    @short_errors
    def tune(self, *, timeout: float = 60.0, **values: float) -> int:
        """Changes values that the training has made tunable, all after the same step: `job.tune(lr=0.01)`.

        Args:
            timeout: Seconds to wait for a step to end, at most 3,600.
            values: New values by the names that `Accelerator.tunable` was given.

        Returns:
            After how many steps they have changed.

        Raises:
            ConfigurationError: There is no such value, or one of them is out of range; nothing is changed.
            JobEndedError: The job has ended.
            TimeoutError: No step has ended in time; the values change when it does.
        """
        if not values:
            raise ConfigurationError("job.tune() changes nothing: give values by name, as in job.tune(lr=0.01)")
        plain = {name: _plain(name, value) for name, value in values.items()}
        return AfterStep(control(self, TUNE, plain, timeout).step)


def _plain(name: str, value: Any) -> float:
    """A number of Python's in place of one of NumPy's, for JSON."""
    if not requests.is_number(value) or not math.isfinite(as_float(value)):
        raise ConfigurationError(f"{name}={value!r} is not a finite number")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def control(
    job: JobHandle, action: str, values: Mapping[str, float] | None = None, timeout: float = 60.0
) -> Controlled:
    """Has all ranks do the same after the same step, and returns what one of them reports.

    Args:
        job: The job.
        action: One of those of `events/control.py`.
        values: What to tune.
        timeout: Seconds to wait until it is done on all ranks.

    Raises:
        ConfigurationError: It can't be done, or `timeout` is out of range.
        JobEndedError: The job has ended.
        TimeoutError: It was not done in time, and will be done later.
    """
    timeout = requests.checked_number("timeout", timeout, above=0, most=_LONGEST)
    found = requests.replies(job, Control(0, action, values or {}), timeout, None, _cause(action))
    replies = {rank: reply for rank, reply in found.by_rank.items() if isinstance(reply, Controlled)}
    refused = {rank: reply.error for rank, reply in replies.items() if reply.error}
    if refused:
        raise ConfigurationError(f"{job.title} can't {_ACTIONS[action][0]}: {_reasons(refused)}")
    done = {rank: reply for rank, reply in replies.items() if reply.step >= 0}
    if found.missing or not done:
        raise _late(job, action, timeout, found)
    return next((reply for reply in done.values() if reply.detail), next(iter(done.values())))


def _cause(action: str) -> str:
    return f"it can't {_ACTIONS[action][0]}: call job.{action.replace(' ', '_')}()"


def _reasons(refused: Mapping[int, str]) -> str:
    by_error: dict[str, list[int]] = {}
    for rank, error in refused.items():
        by_error.setdefault(error, []).append(rank)
    if len(by_error) == 1:
        return next(iter(by_error))
    return "; ".join(f"{named(ranks)}: {error}" for error, ranks in by_error.items())


def _late(job: JobState, action: str, timeout: float, found: Answers) -> Exception:
    if job.status.ended:
        return requests.ended(job, _cause(action))
    if not found.missing:
        return ConfigurationError(f"{job.title} can't {_ACTIONS[action][0]}: none of its ranks runs a function now")
    return TimeoutError(
        f"{named(found.missing)} of {job.title} did not get there within {timeout:g} s. {_ACTIONS[action][1]}"
    )


class PauseNotices:
    """Says below a cell that waits for a job that its training is paused, so that the wait doesn't end by itself."""

    def __init__(self, job: JobHandle) -> None:
        self._job = job
        self._told: Controlled | None = None

    def look(self) -> None:
        """Looks at the job; called several times a second."""
        job = self._job
        last = next((change for change in reversed(job.changes) if change.action == PAUSE), None)
        if not job.is_paused or last is None or last == self._told:
            return
        self._told = last
        rule = rules.met(job, PAUSE)
        why = f", as a rule says ({rule})" if rule else ""
        job.runner.notice_elsewhere(
            f"{job.title} is {describe_change(last)}{why}. This cell waits for it: to continue, click Resume in its "
            "panel; or interrupt the cell, which doesn't stop the job, and run %accelerate resume"
        )


def describe_changes(job: JobState) -> list[str]:
    """The last changes, one a line, the oldest first; `lr 0.1 → 0.01 after step 120`."""
    found: list[str] = []
    pause: tuple[int, Controlled] | None = None
    for change in job.changes:
        if change.action == RESUME and pause is not None:
            index, paused = pause
            found[index] = f"paused for {clock(change.at - paused.at)}{_after(paused)}"
            pause = None
            continue
        if change.action == PAUSE:
            pause = len(found), change
        found.append(describe_change(change))
    left_out = len(found) - _MOST_CHANGES
    earlier = [counted(left_out, "earlier change")] if left_out > 0 else []
    return [*earlier, *found[-_MOST_CHANGES:]]


def describe_change(change: Controlled) -> str:
    """One change."""
    if change.action == PAUSE:
        return f"paused{_after(change)}"
    if change.action == RESUME:
        return f"resumed{_after(change)}"
    if change.action == CHECKPOINT:
        return f"saved {PurePath(change.detail).name}, as requested"
    if change.action == END_AFTER_EPOCH:
        return f"ends after {change.detail}, as requested"
    tuned = ", ".join(_tuned(name, change.before.get(name), value) for name, value in change.values.items())
    return f"{tuned}{_after(change)}"


def _tuned(name: str, before: float | None, value: float) -> str:
    return f"{name} → {value:g}" if before is None else f"{name} {before:g} → {value:g}"


def _after(change: Controlled) -> str:
    return "" if change.step < 0 else f" after step {change.step}"
