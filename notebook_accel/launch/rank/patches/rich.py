"""Patches the progress bars of Rich: `rich.progress.track`, and every `Progress` with its tasks, become events.

A progress that would draw on the terminal is only recorded, and `take` samples its tasks later. So advancing a task
costs no more than before; less, since nothing is drawn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.events import Bar
from notebook_accel.launch.rank.patches import tqdm
from notebook_accel.launch.wire.mirrored import on_import

_RUNNING = f"{__name__}.running"


def install() -> None:
    """Patches Rich once it is imported."""
    on_import.when_imported({"rich.progress": _patch})


def take() -> list[Bar]:
    """The latest state of each task that has moved since the last call."""
    found: list[Bar] = []
    running = _running()
    for key, tracked in list(running.items()):
        is_last = tracked.stopped
        with contextlib.suppress(Exception):  # a subclass of the user's may have any attributes
            found += tracked.updates(is_last=is_last)
        if is_last and tracked.stopped:  # it may have been started again just now
            running.pop(key, None)
    return found


def skip(seconds: float) -> None:
    """Leaves the last seconds out of what the tasks of this rank measure."""
    for tracked in _running().values():
        with contextlib.suppress(Exception):  # a subclass of the user's may have any attributes
            tracked.skip(seconds)


def _running() -> dict[int, _RunningProgress]:
    """The progresses of this rank that have been started and whose end is not yet published, by `id`."""
    found: dict[int, _RunningProgress] = rank_local.space().setdefault(_RUNNING, {})
    return found


class _RunningProgress:
    """A running `Progress`, and the state of its tasks that was published last."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.is_hidden = False
        self.stopped = False
        self._numbers: dict[Any, int] = {}
        self._reported: dict[Any, Bar] = {}

    def hide(self) -> None:
        """Keeps it from drawing, while it believes that it is live: otherwise `track` would not count."""
        self.is_hidden = True
        self.progress.live._started = self.progress.disable = True

    def stop(self) -> None:
        if self.is_hidden:
            self.progress.live._started = self.progress.disable = False
        self.stopped = True

    def updates(self, *, is_last: bool) -> list[Bar]:
        tasks = [task for task in self.progress.tasks if task.visible]
        now = {task.id: self._describe(task, depth) for depth, task in enumerate(tasks)}
        found = [replace(bar, closed=True, leave=False) for id_, bar in self._reported.items() if id_ not in now]
        for id_, bar in now.items():
            bar = replace(bar, closed=True) if is_last else bar
            before = self._reported.get(id_)
            if before is None or replace(bar, elapsed=0.0, rate=None) != replace(before, elapsed=0.0, rate=None):
                found.append(bar)
            now[id_] = bar
        self._reported = now
        return found

    def skip(self, seconds: float) -> None:
        for task in self.progress.tasks:
            if task.start_time is not None and task.stop_time is None:
                task.start_time += seconds
                task._progress.clear()  # the samples that its speed is computed from

    def _describe(self, task: Any, depth: int) -> Bar:
        if task.id not in self._numbers:
            self._numbers[task.id] = tqdm.new_number()
        speed = task.finished_speed or task.speed
        return Bar(
            bar=self._numbers[task.id],
            n=float(task.completed),
            total=None if task.total is None else float(task.total),
            description=_without_markup(task.description),
            rate=None if speed is None else float(speed),
            elapsed=float(task.elapsed or 0.0),
            depth=depth,
            closed=bool(task.finished),
            leave=not self.progress.live.transient,
        )


def _without_markup(description: str) -> str:
    """Without Rich's markup."""
    from rich.text import Text

    return Text.from_markup(str(description)).plain.strip()


def _patch(module: Any) -> None:
    on_import.replace(module.Progress, "start", _patched_start)
    on_import.replace(module.Progress, "stop", _patched_stop)


def _patched_start(original: Callable[..., None]) -> Callable[..., None]:
    def start(self: Any) -> None:
        if not events.is_drawn() or self.disable:
            original(self)
            return
        tracked = _running().get(id(self)) or _RunningProgress(
            self
        )  # it may be started again before its end is published
        tracked.stopped = False
        _running()[id(self)] = tracked
        if tqdm.is_terminal(self.console.file):
            tracked.hide()
        else:
            original(self)  # it draws to a file of the user's

    return start


def _patched_stop(original: Callable[..., None]) -> Callable[..., None]:
    def stop(self: Any) -> None:
        tracked = _running().get(id(self))
        if tracked is None or not tracked.is_hidden:
            original(self)
        if tracked is not None:
            tracked.stop()

    return stop
