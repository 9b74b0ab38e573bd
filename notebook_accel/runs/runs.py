"""`Runs`: the trials of a sweep, as `sweep` returns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.insight.frames import dataframe
from notebook_accel.launch.job.requests import checked_timeout
from notebook_accel.runs import board, coordinates
from notebook_accel.runs.board import Board, Facts
from notebook_accel.runs.coordinates import Coordinates
from notebook_accel.runs.schedule import Schedule
from notebook_accel.runs.trial import Trial

if TYPE_CHECKING:
    from pandas import DataFrame

SIGNS = {"min": -1, "max": 1}
"""By what `goal` may be: 1 if greater values are better, -1 if lower ones are."""


class Runs:
    """The trials of a sweep. A notebook shows them as a table, `print` as text; `runs[3]` is trial 3."""

    def __init__(self, id: str, facts: Facts, schedule: Schedule, drawn: Board) -> None:
        self.id = id
        """What to pass to `sweep` as `resume`."""
        self.trials = list(facts.trials)
        """All trials, each with `number`, `parameters`, `state`, `why`, `metrics`, `seconds`, `job`, and `result`."""
        self._facts = facts
        self._schedule = schedule
        self._drawn = drawn

    def __len__(self) -> int:
        return len(self.trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self.trials)

    def __getitem__(self, number: int) -> Trial:
        return self.trials[number]

    @property
    def results(self) -> list[Any]:
        """What each trial's launch has returned: a list with the value of each rank.

        `None` for one that has returned nothing: it runs, was stopped, or failed.

        Raises:
            JobLostError: What a trial returned in an earlier kernel is not available.
        """
        return [trial.result() if trial.state.value == "done" else None for trial in self.trials]

    def best(self, metric: str | None = None, goal: str | None = None) -> Trial:
        """The trial whose last value of a metric is the best. Those that failed or were cancelled don't count.

        Args:
            metric: The name of the metric, such as `val/loss`. Defaults to that of the sweep.
            goal: `min` or `max`. By default, the metric's name decides: low for a loss, high for an accuracy.

        Raises:
            ConfigurationError: No trial that counts has reported the metric, or its name doesn't tell which values are
                good.
        """
        name = self._named(metric)
        ranked = self._facts.ranked(name, self._sign(name, goal))
        if not ranked:
            raise ConfigurationError(f"no trial has ended with a value of {name!r} that is a finite number")
        return ranked[0]

    def dataframe(self) -> DataFrame | list[dict[str, Any]]:
        """One row for each trial: its number and parameters, `state`, `seconds`, the last value of each metric, `job`.

        A metric that is called as a parameter has `(metric)` after its name. A DataFrame if pandas is installed,
        otherwise a list of dicts.
        """
        rows = [self._row(trial) for trial in self.trials]
        return dataframe(rows)

    def _row(self, trial: Trial) -> dict[str, Any]:
        row = {"trial": trial.number, **trial.parameters, "state": trial.state.value, "seconds": trial.seconds or None}
        taken = {name for each in self.trials for name in each.parameters} | {"trial", "state", "seconds", "job", "why"}
        row |= {f"{name} (metric)" if name in taken else name: value for name, value in trial.metrics.items()}
        return {**row, "job": trial.job_id, "why": trial.why}

    def parallel_coordinates(self, metric: str | None = None, goal: str | None = None) -> Coordinates:
        """A picture with an axis for each parameter and for a metric, and a line for each trial that has ended with it.

        Args:
            metric: The metric. Defaults to that of the sweep.
            goal: As for `best`.

        Raises:
            ConfigurationError: As `best`.
        """
        name = self._named(metric)
        sign = self._sign(name, goal)
        best = self.best(name, goal)
        return coordinates.draw(self._facts.ranked(name, sign), best, name)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end of all trials, for at most `timeout` seconds; returns whether they have ended.

        Raises:
            ConfigurationError: `timeout` is not a number of seconds.
        """
        return self._schedule.wait(None if timeout is None else checked_timeout(timeout, "a number of seconds or None"))

    def stop(self, *numbers: int) -> None:
        """Stops trials, by their numbers; without numbers, all of them. Those that wait don't begin.

        Raises:
            ConfigurationError: There is no such trial.
        """
        for number in numbers:
            if type(number) is not int or not 0 <= number < len(self.trials):
                raise ConfigurationError(f"there is no trial {number!r:.80}: they are 0 to {len(self.trials) - 1}")
        self._schedule.stop(numbers or range(len(self.trials)))

    def _named(self, metric: str | None) -> str:
        name = self._facts.metric if metric is None else metric
        why = self._facts.unreported(name)
        if name is None or why:
            raise ConfigurationError(why)
        return name

    def _sign(self, metric: str, goal: str | None) -> int:
        return self._facts.known_sign(metric) if goal is None else sign_of(goal)

    def __repr__(self) -> str:
        return board.describe(self._facts)

    def _ipython_display_(self) -> None:
        if not self._drawn.is_in_this_cell:  # otherwise, the cell would have the same table twice
            raise NotImplementedError  # IPython then shows `_repr_html_`

    def _repr_html_(self) -> str:
        return board.draw(self._facts, {}, live=False)


def sign_of(goal: str) -> int:
    """1 if greater values are better, -1 if lower ones are.

    Raises:
        ConfigurationError: It is neither `min` nor `max`.
    """
    if goal not in SIGNS:
        raise ConfigurationError(f"goal={goal!r:.80} is neither 'min' nor 'max'")
    return SIGNS[goal]
