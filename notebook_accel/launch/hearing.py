"""What a pump waits for, and how often it looks at what can wait.

Each time that a process wakes among many others costs it several times what it then does: its caches are theirs. So
ranks that tell how far they are, and nothing else, are heard together at a pace.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable

from notebook_accel.launch.stream import HasFileno

Source = int | HasFileno

_PACE, _LONGEST_PACE = 0.002, 0.1
"""Seconds for each of the patient between two times that they are heard, and the most for all of them together."""
_LIVELY = 1.0
"""Seconds from the beginning in which all are heard at once: most launches are over by then."""


class Hearing:
    """Calls what belongs to each source that has something to be read."""

    def __init__(self) -> None:
        self._all = selectors.DefaultSelector()
        self._urgent = selectors.DefaultSelector()
        self._patient = 0
        self._lively_until = time.monotonic() + _LIVELY
        self._due = 0.0
        """When the patient are heard next."""

    def register(self, source: Source, heard: Callable[[], object]) -> None:
        """Has `heard` called as soon as there is something."""
        for selector in (self._all, self._urgent):
            selector.register(source, selectors.EVENT_READ, heard)

    def register_patient(self, source: Source, heard: Callable[[], bool]) -> None:
        """Has `heard` called, which returns whether it can wait if there is more."""
        self._all.register(source, selectors.EVENT_READ, heard)
        self._patient += 1

    def forget(self, source: Source) -> None:
        """Undoes that, if it was done."""
        for selector in (self._all, self._urgent):
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(source)

    def wait(self, timeout: float) -> None:
        """Waits until something has been heard, for at most so many seconds."""
        left = self._due - time.monotonic()
        if left > 0:
            for key, _ in self._urgent.select(min(left, timeout)):
                key.data()
            return
        answers = [key.data() for key, _ in self._all.select(timeout)]
        now = time.monotonic()
        if now >= self._lively_until and False not in answers:
            self._due = now + min(_LONGEST_PACE, _PACE * self._patient)

    def close(self) -> None:
        """Frees what it holds."""
        self._all.close()
        self._urgent.close()
