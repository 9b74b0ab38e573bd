"""Makes events of the bars of Rich: `rich.progress.track`, and every `Progress` with its tasks.

A progress that would draw on the terminal is only remembered, and `take` looks at its tasks later: so what moves them
costs what it did, and less, for nothing is drawn. Rich is changed when it is imported.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.events import Bar
from notebook_accel.launch.rank.patches import tqdm
from notebook_accel.launch.rank.patches.on_import import when_imported

_RUNNING = f"{__name__}.running"


def install() -> None:
    """Has the bars of this process followed, once Rich is there."""
    when_imported({"rich.progress": _change})


def take() -> list[Bar]:
    """The latest state of each task that has moved since the last call."""
    found: list[Bar] = []
    running = _running()
    for key, followed in list(running.items()):
        is_last = followed.stopped
        with contextlib.suppress(Exception):  # a class of the user's may tell anything of itself
            found += followed.news(is_last=is_last)
        if is_last and followed.stopped:  # it may have been started again just now
            running.pop(key, None)
    return found


def _running() -> dict[int, _Followed]:
    """By the identity of the progress, each of this rank's that has been started and not yet told to its end."""
    found: dict[int, _Followed] = rank_local.space().setdefault(_RUNNING, {})
    return found


class _Followed:
    """A progress that runs, and what was told of its tasks."""

    def __init__(self, progress: Any) -> None:
        self.progress = progress
        self.is_hidden = False
        self.stopped = False
        self._numbers: dict[Any, int] = {}
        self._told: dict[Any, Bar] = {}

    def hide(self) -> None:
        """Has it draw nothing, and take itself for drawn: `track` counts only as long as it is."""
        self.is_hidden = True
        self.progress.live._started = self.progress.disable = True

    def stop(self) -> None:
        if self.is_hidden:
            self.progress.live._started = self.progress.disable = False
        self.stopped = True

    def news(self, *, is_last: bool) -> list[Bar]:
        tasks = [task for task in self.progress.tasks if task.visible]
        now = {task.id: self._describe(task, depth) for depth, task in enumerate(tasks)}
        found = [replace(bar, closed=True, leave=False) for id_, bar in self._told.items() if id_ not in now]
        for id_, bar in now.items():
            bar = replace(bar, closed=True) if is_last else bar
            before = self._told.get(id_)
            if before is None or replace(bar, elapsed=0.0, rate=None) != replace(before, elapsed=0.0, rate=None):
                found.append(bar)
            now[id_] = bar
        self._told = now
        return found

    def _describe(self, task: Any, depth: int) -> Bar:
        if task.id not in self._numbers:
            self._numbers[task.id] = tqdm.new_number()
        speed = task.finished_speed or task.speed
        return Bar(
            bar=self._numbers[task.id],
            n=float(task.completed),
            total=None if task.total is None else float(task.total),
            description=_plain(task.description),
            rate=None if speed is None else float(speed),
            elapsed=float(task.elapsed or 0.0),
            depth=depth,
            closed=bool(task.finished),
            leave=not self.progress.live.transient,
        )


def _plain(description: str) -> str:
    """Without Rich's markup."""
    from rich.text import Text

    return Text.from_markup(str(description)).plain.strip()


def _change(module: Any) -> None:
    progress = module.Progress
    if not hasattr(progress.start, "__wrapped__"):
        progress.start = _start(progress.start)
        progress.stop = _stop(progress.stop)


def _start(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(self: Any) -> None:
        if not events.has_sink() or self.disable:
            original(self)
            return
        followed = _running().get(id(self)) or _Followed(self)  # it may go on before its end was told
        followed.stopped = False
        _running()[id(self)] = followed
        if tqdm.is_terminal(self.console.file):
            followed.hide()
        else:
            original(self)  # it writes to a file of the user's

    return start


def _stop(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def stop(self: Any) -> None:
        followed = _running().get(id(self))
        if followed is None or not followed.is_hidden:
            original(self)
        if followed is not None:
            followed.stop()

    return stop
