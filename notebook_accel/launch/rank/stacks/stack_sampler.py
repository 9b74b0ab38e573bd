"""Samples the stacks of this process's threads, from the channel thread.

That takes microseconds and disturbs no thread. The alternative, a signal on which faulthandler writes the stacks, is
for a process that holds the GIL all the time: while Python code runs, its frames may change as they are being written,
which can crash the process.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import itertools
import linecache
import re
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from notebook_accel.events import Frame, ThreadStack
from notebook_accel.launch.wire import stack_frames

_MOST_FRAMES = 100
"""The most frames of a stack, from the innermost; faulthandler writes as many."""
_MOST_THREADS = 64
"""The most threads whose stacks are reported."""
_NAME = re.compile(r"([\w.]+)\s*\(")


def threads(main: int, *, all_of_them: bool) -> list[ThreadStack]:
    """The stack of the thread `main`, then those of the others, except the calling thread and notebook-accel's own."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = []
    for ident, frame in current_frames().items():
        is_main = ident == main
        if is_main or (all_of_them and ident != threading.get_ident()):
            stack = of(frame)
            name = "main thread" if is_main else names.get(ident, f"thread {ident}")
            if stack or is_main:
                found.append(ThreadStack(name, stack, _innermost_call(frame), is_main))
    return sorted(found, key=lambda thread: not thread.main)[:_MOST_THREADS]


@contextlib.contextmanager
def _collection_paused() -> Iterator[None]:
    """Keeps Python from collecting garbage, for microseconds.

    Before Python 3.12 (https://github.com/python/cpython/issues/97922), a collection may begin wherever an object is
    made, so also within the functions that make the objects for frames. The user's finalizers may then let the other
    thread run, which leaves these frames, and Python writes to freed memory.
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by the thread's number."""
    with _collection_paused():
        return sys._current_frames()


def innermost(frame: FrameType, count: int) -> list[FrameType]:
    """The innermost frames of a stack."""
    found = [frame]
    with _collection_paused():
        while len(found) < count and (outer := found[-1].f_back) is not None:
            found.append(outer)
    return found


def of(frame: FrameType) -> list[Frame]:
    """The frames of a stack, the outermost first."""
    found = [Frame(at.f_code.co_filename, at.f_lineno or 0, at.f_code.co_name) for at in innermost(frame, _MOST_FRAMES)]
    return stack_frames.without_ours(reversed(found))


def _innermost_call(frame: FrameType) -> str:
    """The name of what the innermost line of the user's code is calling, if there is such a line."""
    stack = innermost(frame, sys.maxsize)
    return next((called(at) for at in stack if stack_frames.is_user_file(at.f_code.co_filename)), "")


def called(frame: FrameType) -> str:
    """The name of what a frame is calling now, as in its source: `time.sleep`. Empty if it calls nothing."""
    code = frame.f_code
    if not hasattr(code, "co_positions"):  # Python 3.10
        names = _NAME.findall(linecache.getline(code.co_filename, frame.f_lineno or 0))
        return names[0] if len(names) == 1 else ""
    first, last, start, end = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    if first is None or last is None or start is None or end is None:
        return ""
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        expression = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):  # the source has changed since
        return ""
    return _dotted(expression.func) if isinstance(expression, ast.Call) else ""


def _dotted(function: ast.expr) -> str:
    """`time.sleep`; the end of a longer expression, such as `backward` of `loss(x).backward`."""
    names: list[str] = []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        names.append(function.id)
    return ".".join(reversed(names))
