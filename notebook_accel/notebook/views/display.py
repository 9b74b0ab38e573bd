"""One output below a cell that is drawn again and again, at a pace that a browser bears."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from notebook_accel.launch.job import Job

_SHARE = 0.04
"""The most of a processor's time that drawing takes."""

Bundle = Mapping[str, str]
"""Text by its type, such as `text/html`."""


class Display:
    """A view that draws a whole bundle each time, when it has changed."""

    def __init__(self, job: Job, draw: Callable[[Job], Bundle], interval: float) -> None:
        from IPython.display import display

        self._job = job
        self._draw = draw
        self._interval = interval
        """Seconds between two drawings, unless they take too long for that."""
        self._drawn = draw(job)
        self._handle = display(dict(self._drawn), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        self._due = time.monotonic() + interval

    def refresh(self) -> None:
        began = time.monotonic()
        if began >= self._due:
            self.finish()
            ended = time.monotonic()
            self._due = ended + max(self._interval, (ended - began) / _SHARE)

    def finish(self) -> None:
        bundle = self._draw(self._job)
        if bundle != self._drawn:
            self._drawn = bundle
            self._handle.update(dict(bundle), raw=True)
