"""Patches tqdm: bars of every kind become events, with nothing to change in the user's code.

`install` replaces methods of the class `tqdm.std.tqdm` itself, so that earlier imports and subclasses are patched too.
The classes of tqdm for other front ends, such as `tqdm.notebook`, lose their own methods and behave like the base.

Instead of drawing, a bar marks itself as changed, and `take` later samples all bars that have ever done so. A bar thus
costs its loop next to nothing, however often it draws, and a bar that rarely draws, or is inside a long step, is still
sampled.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

from notebook_accel import events, rank_local
from notebook_accel.events import Bar
from notebook_accel.launch.wire.plain_text import plain

_FRONT_ENDS = ("tqdm.notebook", "tqdm.rich", "tqdm.gui", "tqdm.tk")
_FRONT_END_METHODS = (
    "__init__", "__iter__", "update", "display", "close", "clear", "reset", "status_printer",
    "colour",  # codespell:ignore colour
    "set_description", "set_description_str", "cancel",
)  # fmt: skip
_FRONT_END_OPTIONS = ("display", "gui", "options", "progress", "grab", "tk_parent", "cancel_callback")
_FILE_INDEX = 4
"""The index of `file` among the positional arguments of a bar."""

_numbers = itertools.count()
_CHANGED, _SAMPLED = f"{__name__}.marked", f"{__name__}.followed"


class _NullTerminal:
    """A terminal that discards what is written."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def new_number() -> int:
    """A number for a bar that is unique in this process."""
    return next(_numbers)


def install() -> None:
    """Patches `tqdm.std.tqdm`: the bars of this process become events as long as there is a listener."""
    from tqdm import std

    bar: Any = std.tqdm
    default_lock: Any = getattr(std, "TqdmDefaultWriteLock")  # noqa: B009  # not in tqdm's stubs
    if hasattr(bar, "_accel_number"):
        return
    bar._accel_number = None
    bar._accel_draws = True
    bar._accel_loop = None
    bar.__init__ = _patched_init(bar.__init__)
    bar.__iter__ = _patched_iter(bar.__iter__)
    bar.display = _patched_display(bar.display)
    bar.close = _patched_close(bar.close)
    bar.__init_subclass__ = classmethod(_remove_front_end)
    for cls in _subclasses(bar):
        _remove_front_end(cls)
    # A lock that bars made before a fork is a semaphore that all forks share: one that is killed while it holds the
    # lock would block the others.
    for owner, lock in ((bar, "_lock"), (default_lock, "mp_lock")):
        if lock in vars(owner):
            delattr(owner, lock)


def publish(bar: Bar) -> None:
    """Queues the state of a bar of another library for `take`."""
    _changed()[bar.bar] = bar


def take() -> list[Bar]:
    """The state of each bar that has changed since the last call."""
    found = []
    changed, sampled = _changed(), _sampled()
    for number in list(changed):
        state = changed.pop(number)
        if isinstance(state, Bar):
            sampled.pop(number, None)
            found.append(state)
        else:
            sampled[number] = weakref.ref(state), None
    for number, (reference, last_count) in list(sampled.items()):
        del sampled[number]
        with contextlib.suppress(Exception):  # a subclass of the user's may have any attributes
            bar = reference()
            if bar is None or bar.disable:
                continue
            count = _count(bar)
            if count != last_count:
                found.append(_describe(bar, count))
            sampled[number] = reference, count
    return found


def skip(seconds: float) -> None:
    """Leaves the last seconds out of what the open bars of this rank measure."""
    for reference, _ in _sampled().values():
        with contextlib.suppress(Exception):  # a subclass of the user's may have any attributes
            bar: Any = reference()
            bar.start_t += seconds
            bar.last_print_t += seconds


def _changed() -> dict[int, Any]:
    """The bars of this rank that have marked themselves, by number; for one that has closed, its last event."""
    found: dict[int, Any] = rank_local.space().setdefault(_CHANGED, {})
    return found


def _sampled() -> dict[int, tuple[weakref.ref[Any], float | None]]:
    """The open bars of this rank that have ever marked themselves, by number, and the count that was sent last."""
    found: dict[int, tuple[weakref.ref[Any], float | None]] = rank_local.space().setdefault(_SAMPLED, {})
    return found


def _count(bar: Any) -> float:
    """The count of a bar. A loop over it counts in a local variable, and updates the bar only when it draws."""
    loop = None if bar._accel_loop is None else bar._accel_loop()
    frame = None if loop is None else loop.gi_frame
    if frame is None or frame.f_trace is not None:  # reading `f_locals` in a debugger may write variables back
        return _to_number(bar.n)
    variables = frame.f_locals
    count = variables.get("n", 0)
    if isinstance(variables, dict):
        variables.clear()  # a copy, which would keep a batch alive
    return max(_to_number(bar.n), _to_number(count))


def _patched_init(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in _FRONT_END_OPTIONS:
            kwargs.pop(name, None)
        if events.is_drawn():
            self._accel_number = new_number()
            file = args[_FILE_INDEX] if len(args) > _FILE_INDEX else kwargs.get("file")
            self._accel_draws = not is_terminal(file)
            if not self._accel_draws:
                if len(args) > _FILE_INDEX:
                    args = (*args[:_FILE_INDEX], _NULL_TERMINAL, *args[_FILE_INDEX + 1 :])
                else:
                    kwargs["file"] = _NULL_TERMINAL
                kwargs["dynamic_ncols"] = False
                if kwargs.get("disable", False) is None:
                    kwargs["disable"] = False  # None means: unless `file` is a terminal
        original(self, *args, **kwargs)

    return __init__


def _patched_iter(original: Callable[..., Generator[Any, None, None]]) -> Callable[..., Generator[Any, None, None]]:
    @functools.wraps(original)
    def __iter__(self: Any) -> Generator[Any, None, None]:
        loop = original(self)
        if self._accel_number is not None:
            self._accel_loop = weakref.ref(loop)  # weak, since the loop references the bar
        return loop

    return __iter__


def _patched_display(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def display(self: Any, msg: str | None = None, pos: int | None = None, **_: Any) -> Any:
        if self._accel_number is not None:
            _changed()[self._accel_number] = self
        return original(self, msg, pos) if self._accel_draws else True

    return display


def _patched_close(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def close(self: Any) -> None:
        was_open = not getattr(self, "disable", True)
        original(self)
        # A bar whose `delay` has not passed has never been shown.
        if was_open and self._accel_number is not None and self.last_print_t >= self.start_t + self.delay:
            # Not the bar itself, which may keep a whole dataset alive.
            _changed()[self._accel_number] = _describe(self)

    return close


def _describe(bar: Any, count: float | None = None) -> Bar:
    state = bar.format_dict
    scale = state["unit_scale"] if state["unit_scale"] not in (True, False, None, 1) else 1
    n, elapsed = state["n"] if count is None else count, state["elapsed"]
    rate = state["rate"]
    if rate is None and elapsed:
        rate = (n - state["initial"]) / elapsed
    total = state["total"]
    return Bar(
        bar=bar._accel_number,
        n=_to_number(n * scale),
        total=_to_number(total * scale) if total else None,
        description=plain(str(state["prefix"] or "")).strip().removesuffix(":"),
        unit=str(state["unit"]),
        rate=float(rate * scale) if rate else None,
        elapsed=float(elapsed),
        postfix=plain(str(state["postfix"] or "")),
        depth=abs(bar.pos),
        closed=bool(bar.disable),
        leave=bar.pos == 0 if bar.leave is None else bool(bar.leave),
        initial=_to_number((state["initial"] or 0) * scale),
    )


def _to_number(number: Any) -> float:
    return number if type(number) in (int, float) else float(number)


def is_terminal(file: Any) -> bool:
    """Whether a bar written there would reach the user's screen. One written to the user's own file is left alone."""
    return file is None or any(file is stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def _remove_front_end(cls: Any, /, **_: Any) -> None:
    """Removes from a class of tqdm's own the methods with which it draws in another front end."""
    if cls.__module__ in _FRONT_ENDS:
        for name in _FRONT_END_METHODS:
            if name in vars(cls):
                delattr(cls, name)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    child: type[Any]
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


_NULL_TERMINAL = _NullTerminal()
