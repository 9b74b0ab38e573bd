"""Makes events of a rank's progress bars: of every kind of tqdm, with nothing to change in the code that draws them.

The methods of `tqdm.std.tqdm` itself are replaced, so that a name which was imported, captured or subclassed before
means the new ones too. The classes of tqdm that draw by other means lose those, and draw as their base does.

A bar that would draw only marks itself, and `take` looks later at those that ever did. So a bar costs its loop next to
nothing, however often it is drawn; and one that draws seldom, or not before a long step that it is in, is told anyway.
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
from notebook_accel.launch.wire.terminal_codes import plain

_FRONT_ENDS = ("tqdm.notebook", "tqdm.rich", "tqdm.gui", "tqdm.tk")
_THEIR_METHODS = (
    "__init__", "__iter__", "update", "display", "close", "clear", "reset", "status_printer", "colour",
    "set_description", "set_description_str", "cancel",
)  # fmt: skip
_THEIR_OPTIONS = ("display", "gui", "options", "progress", "grab", "tk_parent", "cancel_callback")
_FILE = 4
"""Where `file` stands among the positional arguments of a bar."""

_numbers = itertools.count()
_MARKED, _FOLLOWED = f"{__name__}.marked", f"{__name__}.followed"


class _Nowhere:
    """A terminal that shows nothing."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def new_number() -> int:
    """A number for a bar, of which this process has no other."""
    return next(_numbers)


def install() -> None:
    """Has the bars of this process mark themselves, as long as somebody listens to its events."""
    from tqdm import std

    bar: Any = std.tqdm
    default_lock: Any = getattr(std, "TqdmDefaultWriteLock")  # noqa: B009  # not in tqdm's stubs
    if hasattr(bar, "_accel_number"):
        return
    bar._accel_number = None
    bar._accel_draws = True
    bar._accel_loop = None
    bar.__init__ = _init(bar.__init__)
    bar.__iter__ = _iter(bar.__iter__)
    bar.display = _display(bar.display)
    bar.close = _close(bar.close)
    bar.__init_subclass__ = classmethod(_strip)
    for cls in _subclasses(bar):
        _strip(cls)
    # A lock that bars have made before this process forks is shared with all its forks: one that dies with it in hand
    # would stop the others.
    for owner, lock in ((bar, "_lock"), (default_lock, "mp_lock")):
        if lock in vars(owner):
            delattr(owner, lock)


def tell(bar: Bar) -> None:
    """Has `take` find the state of a bar of another kind."""
    _marked()[bar.bar] = bar


def take() -> list[Bar]:
    """The latest state of each bar that has marked itself or moved since the last call."""
    found = []
    marked, followed = _marked(), _followed()
    for number in list(marked):
        state = marked.pop(number)
        if isinstance(state, Bar):
            followed.pop(number, None)
            found.append(state)
        else:
            followed[number] = weakref.ref(state), None
    for number, (reference, told) in list(followed.items()):
        del followed[number]
        with contextlib.suppress(Exception):  # a class of the user's may tell anything of itself
            bar = reference()
            if bar is None or bar.disable:
                continue
            count = _count(bar)
            if count != told:
                found.append(_describe(bar, count))
            followed[number] = reference, count
    return found


def _marked() -> dict[int, Any]:
    """By number, the bars of this rank that have something to tell; for one that has been closed, its last event."""
    found: dict[int, Any] = rank_local.space().setdefault(_MARKED, {})
    return found


def _followed() -> dict[int, tuple[weakref.ref[Any], float | None]]:
    """By number, the open bars of this rank that have ever marked themselves, and where each was told to be."""
    found: dict[int, tuple[weakref.ref[Any], float | None]] = rank_local.space().setdefault(_FOLLOWED, {})
    return found


def _count(bar: Any) -> float:
    """Where a bar is: a loop over it counts for itself, and tells the bar when that is to be drawn."""
    loop = None if bar._accel_loop is None else bar._accel_loop()
    frame = None if loop is None else loop.gi_frame
    if frame is None or frame.f_trace is not None:  # a debugger may write its variables back
        return _plain(bar.n)
    variables = frame.f_locals
    count = variables.get("n", 0)
    if isinstance(variables, dict):
        variables.clear()  # it is a copy, which would hold on to a batch
    return max(_plain(bar.n), _plain(count))


def _init(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in _THEIR_OPTIONS:
            kwargs.pop(name, None)
        if events.has_sink():
            self._accel_number = new_number()
            file = args[_FILE] if len(args) > _FILE else kwargs.get("file")
            self._accel_draws = not is_terminal(file)
            if not self._accel_draws:
                if len(args) > _FILE:
                    args = (*args[:_FILE], _NOWHERE, *args[_FILE + 1 :])
                else:
                    kwargs["file"] = _NOWHERE
                kwargs["dynamic_ncols"] = False
                if kwargs.get("disable", False) is None:
                    kwargs["disable"] = False  # it meant: unless this is a terminal
        original(self, *args, **kwargs)

    return __init__


def _iter(original: Callable[..., Generator[Any, None, None]]) -> Callable[..., Generator[Any, None, None]]:
    @functools.wraps(original)
    def __iter__(self: Any) -> Generator[Any, None, None]:
        loop = original(self)
        if self._accel_number is not None:
            self._accel_loop = weakref.ref(loop)  # the loop holds on to the bar
        return loop

    return __iter__


def _display(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def display(self: Any, msg: str | None = None, pos: int | None = None, **_: Any) -> Any:
        if self._accel_number is not None:
            _marked()[self._accel_number] = self
        return original(self, msg, pos) if self._accel_draws else True

    return display


def _close(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def close(self: Any) -> None:
        was_open = not getattr(self, "disable", True)
        original(self)
        # One whose `delay` has not passed has never been shown.
        if was_open and self._accel_number is not None and self.last_print_t >= self.start_t + self.delay:
            # Not the bar itself: it may hold on to a whole data set.
            _marked()[self._accel_number] = _describe(self)

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
        n=_plain(n * scale),
        total=_plain(total * scale) if total else None,
        description=plain(str(state["prefix"] or "")).strip().removesuffix(":"),
        unit=str(state["unit"]),
        rate=float(rate * scale) if rate else None,
        elapsed=float(elapsed),
        postfix=plain(str(state["postfix"] or "")),
        depth=abs(bar.pos),
        closed=bool(bar.disable),
        leave=bar.pos == 0 if bar.leave is None else bool(bar.leave),
    )


def _plain(number: Any) -> float:
    return number if type(number) in (int, float) else float(number)


def is_terminal(file: Any) -> bool:
    """Whether what is written there would reach the user as a bar; a file of the user's own is written as ever."""
    return file is None or any(file is stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def _strip(cls: Any, /, **_: Any) -> None:
    """Takes from a class of tqdm's own what it does to draw elsewhere."""
    if cls.__module__ in _FRONT_ENDS:
        for name in _THEIR_METHODS:
            if name in vars(cls):
                delattr(cls, name)


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    child: type[Any]
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


_NOWHERE = _Nowhere()
