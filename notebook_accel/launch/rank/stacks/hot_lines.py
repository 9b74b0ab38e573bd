"""Finds which lines of the user's code the parts of a training step spend their time on, from samples of the stack.

The channel thread samples the main thread ten times a second anyway, to detect waits (`collective_wait.py`). Each
sample counts for the innermost line of the user's code, and for the part of the step that the rank is in.
"""

from __future__ import annotations

import threading
from types import CodeType, FrameType

from notebook_accel import events
from notebook_accel.events import Frame
from notebook_accel.launch.rank.stacks import stack_sampler
from notebook_accel.launch.wire import stack_frames

_MOST_FRAMES = 60
"""How many frames are searched for one of the user's code."""
_MOST_LINES = 10_000
_UNPICKLING = ("/multiprocessing/queues.py", "/torch/multiprocessing/reductions.py")
"""The files whose functions are innermost, or called by the innermost ones, while a loader unpickles a batch."""
_INNERMOST = 8
_WAITS = ("/selectors.py", "/multiprocessing/connection.py")
"""The files that are innermost while a loader waits for a batch."""


class HotLines:
    """Counts the samples of a rank's main thread."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, int], tuple[str, str]] = {}
        """The place and the text of each line, by the `id` of its code and its number."""
        self._codes: list[CodeType] = []
        """Keeps each `id` from being used again."""

    def add(self, thread: int, frame: FrameType) -> None:
        """Counts a sample, if the rank is in a training step whose parts are measured.

        Args:
            thread: The number of the sampled thread.
            frame: Its innermost frame.
        """
        clock = events.step_clock()
        if clock is None or threading.get_ident() == thread:  # a call that has ended samples itself
            return
        if events.training_is_paused():
            return
        stack = stack_sampler.innermost(frame, _MOST_FRAMES)
        if _is_unpickling(stack):
            clock.count_unpickling()
        user = next((each for each in stack if stack_frames.is_user_file(each.f_code.co_filename)), None)
        if user is not None:
            clock.count_sample(*self._line(user.f_code, user.f_lineno or 0))

    def _line(self, code: CodeType, number: int) -> tuple[str, str]:
        key = (id(code), number)
        found = self._lines.get(key)
        if found is None:
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
                self._codes.clear()
            frame = Frame(code.co_filename, number, code.co_name)
            found = self._lines[key] = (stack_frames.where(frame), stack_frames.source(frame))
            self._codes.append(code)
        return found


def _is_unpickling(stack: list[FrameType]) -> bool:
    files = [each.f_code.co_filename for each in stack[:_INNERMOST]]
    return not files[0].endswith(_WAITS) and any(file.endswith(_UNPICKLING) for file in files)
