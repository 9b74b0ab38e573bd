"""The observers of the training steps on this rank: one list, in the order in which they are called.

An observer has a method for each point of a step at which it is called, on the thread that trains:

    batches(loader, batches)           a prepared loader begins an epoch; returns the batches, or yields them
    before_backward(loss, is_synced)   `is_synced()` returns whether the pass waits for the gradients of other ranks
    after_backward(has_ended)          `False`: it has raised an exception
    before_step()                      a prepared optimizer is about to step
    after_step(optimizer)              it has stepped

`StepClock` measures the steps, `LoaderBars` reports progress, `TrainingPoint` counts, `Controls` pauses and changes the
training, and `EpochLoop` saves it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterator, Sized
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.events import Bar
from notebook_accel.train.step_timing import StepClock

_INTERVAL = 0.1
"""Seconds between two reports of a loader."""
_bar_numbers = itertools.count(-1, -1)
_number_by_loader: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""The number of each loader's bar, the same in every epoch; negative, so that it is never that of a tqdm bar."""
_Methods = tuple[Callable[..., Any], ...]


class StepObservers:
    """The observers of one rank. Each point has the methods to call there; one without observers costs nothing."""

    batches: _Methods
    before_backward: _Methods
    after_backward: _Methods
    before_step: _Methods
    after_step: _Methods

    def __init__(self) -> None:
        self._set([LoaderBars(), TrainingPoint.of_this_rank()])

    def add(self, observer: Any) -> None:
        """Adds an observer, which is called at each point after the others, if it isn't there yet."""
        if observer not in self._all:
            self._set([*self._all, observer])

    def begin_with(self, clock: StepClock) -> None:
        """Makes this the clock, which comes first, since it does not measure what other observers do."""
        self._set([clock, *(each for each in self._all if not isinstance(each, StepClock))])

    def remove(self, observer: Any) -> None:
        self._set([each for each in self._all if each is not observer])

    def _set(self, observers: list[Any]) -> None:
        self._all = observers
        for point in StepObservers.__annotations__:
            setattr(self, point, tuple(getattr(each, point) for each in observers if hasattr(each, point)))


class TrainingPoint:
    """How far the training is, counted the same on all ranks, so that two can tell whether they are at one point of it.

    Attributes:
        steps: The number of steps that prepared optimizers have made on this rank. It is never reset.
    """

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    @classmethod
    def of_this_rank(cls) -> TrainingPoint:
        """That of this rank, always the same object."""
        found: TrainingPoint = rank_local.space().setdefault(f"{__name__}.point", cls())
        return found

    def before_step(self) -> None:
        self.steps += 1


class Controls:
    """Lets the controls of the launch pause and change the training."""

    def after_step(self, optimizer: object) -> None:
        control = events.step_control()
        if control is not None:
            control.on_step(optimizer)


CONTROLS = Controls()


class LoaderBars:
    """Reports the progress of loaders as tqdm bars would; only in a launch, where a listener receives events.

    The view decides whether to show the bar: not next to a bar of the user that counts the same batches.
    """

    def batches(self, loader: Sized, batches: Iterator[Any]) -> Iterator[Any]:
        return _reporting(loader, batches) if events.has_sink() else batches


def _reporting(loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
    number = _number_by_loader.setdefault(loader, next(_bar_numbers))
    bar = ReportedBar("batch", "batches", _length(loader), loader.cursor.done, number)
    due = 0.0
    with contextlib.closing(bar):
        for batch in batches:
            now = time.monotonic()
            if now >= due:
                due = now + _INTERVAL
                bar.report()
            yield batch
            bar.done += 1


class ReportedBar:
    """A bar that no user draws.

    Args:
        description: What a unit of it is.
        counts: As that of `Bar`.
        total: The number of units, if it is known.
        initial: How many of them were done before.
        number: Its number, if it has one already.

    Attributes:
        done: How many units are done.
    """

    def __init__(
        self, description: str, counts: str, total: int | None, initial: int = 0, number: int | None = None
    ) -> None:
        self._number = next(_bar_numbers) if number is None else number
        self._description, self._counts, self._total, self._initial = description, counts, total, initial
        self._control = events.step_control()
        self._began = time.monotonic() - self._paused
        self.done = initial

    @property
    def _paused(self) -> float:
        return 0.0 if self._control is None else self._control.paused_seconds

    def close(self) -> None:
        """Reports how far it came."""
        self.report(closed=True)

    def report(self, *, closed: bool = False) -> None:
        """Reports how far it is."""
        elapsed = time.monotonic() - self._paused - self._began
        made = self.done - self._initial
        events.emit(
            Bar(
                self._number,
                self.done,
                self._total,
                self._description,
                unit=self._description,
                rate=made / elapsed if made and elapsed else None,
                elapsed=elapsed,
                closed=closed,
                counts=self._counts,
                initial=self._initial,
            )
        )


def _length(loader: Sized) -> int | None:
    try:
        return len(loader)
    except TypeError:  # iterable datasets need not have a length
        return None
