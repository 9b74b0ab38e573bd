"""The screens between the output of ranks and the console: one bounds it, one survives its errors.

Bounds: of the lines that the ranks of a job leave in a notebook, the first ones and the last ones are shown.

    lines ─▶ the first of them, as the console's streams
          ─▶ from then on, a page: one output that is redrawn with the last lines, and says how many are left out

Something displayed between lines ends a page, so that lines stay where they belong; the next line begins another.
A terminal can't redraw what has scrolled, and stores nothing, so there all lines are shown.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from notebook_accel.launch.job import output_log
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.output_log import MOST_CHARACTERS_IN_NOTEBOOK, MOST_LINES_IN_NOTEBOOK
from notebook_accel.launch.show import console

_MOST_LIVE_LINES = 100
"""The number of lines of a page that is redrawn while lines come: enough to follow them."""
_INTERVAL = 0.3
"""Seconds between two drawings of a page."""


class Screen(Protocol):
    """Takes what ranks write and display: the console, or a screen before it."""

    @property
    def updates_displays(self) -> bool: ...

    def write(self, stream: str, text: str) -> None: ...

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None: ...


def of(job: Job) -> GuardedScreen:
    """The console as the screen for a job's output."""
    return GuardedScreen(console.current, job.title, output_log.where_all_are(job.id))


class GuardedScreen:
    """Shows the output of ranks on another screen; if that raises, a notice says so once.

    Each later output tries again, since the stream that failed may be replaced by another one.

    Args:
        screen: The other one.
        title: The name of the job.
        rest: Where all lines are: the end of a sentence.
    """

    def __init__(self, screen: Screen, title: str, rest: str) -> None:
        self._screen = screen
        self._title = title
        self._rest = rest
        self._has_failed = False

    @property
    def updates_displays(self) -> bool:
        return self._screen.updates_displays

    def write(self, stream: str, text: str) -> None:
        """Shows whole lines, each with its newline."""
        self._show(partial(self._screen.write, stream, text), f"sys.{stream}")

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        """Shows rich output."""
        self._show(partial(self._screen.display, data, metadata, display_id, update=update), "the notebook")

    def _show(self, show: Callable[[], None], where: str) -> None:
        try:
            show()
        except BrokenPipeError:
            raise  # no process reads what this one prints, as after `| head`: it ends, as any other does
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                console.current.notice(
                    f"output of {self._title} can't be shown, because {where} doesn't take it "
                    f"({type(error).__name__}: {error}). The job is not affected; {self._rest}"
                )


@dataclass(eq=False)
class _Page:
    """An output with lines, of which the oldest are dropped."""

    id: str
    lines: deque[str] = field(default_factory=deque)
    drawn: str | None = None
    """The text that it shows; `None` before the first."""


class BoundedScreen:
    """Shows the output of ranks on another screen, within bounds.

    Args:
        screen: The other one.
        rest: The end of a sentence that says where all lines are; empty if there is no bound.
    """

    def __init__(self, screen: Screen, rest: str = "") -> None:
        self._screen = screen
        self._rest = rest
        self._lines_left, self._characters_left = MOST_LINES_IN_NOTEBOOK, MOST_CHARACTERS_IN_NOTEBOOK
        """What may still be written to streams."""
        self._pages: deque[_Page] = deque()
        self._is_open = False
        """Whether the last page takes further lines."""
        self._prefix = os.urandom(6).hex()
        self._count = 0
        self._size = 0
        """Lines of all pages."""
        self._characters = 0
        self._dropped = 0
        """Lines that no page has any longer."""
        self._due = 0.0

    @property
    def updates_displays(self) -> bool:
        return self._screen.updates_displays

    def write(self, stream: str, text: str) -> None:
        """Shows whole lines, each with its newline."""
        if not (self._rest and self._screen.updates_displays):
            self._screen.write(stream, text)
            return
        first, rest = self._split(text)
        if first:
            self._screen.write(stream, first)
        if rest:
            self._add(rest)

    def display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str, *, update: bool = False
    ) -> None:
        """Shows rich output, below the lines so far."""
        if self._is_open and not update:
            self._draw(self._pages[-1], is_last=True)
            self._is_open = False
        self._screen.display(data, metadata, display_id, update=update)

    def refresh(self, now: float, *, is_last: bool = False) -> None:
        """Draws what has changed, if that is due.

        Args:
            now: The time, on the monotonic clock.
            is_last: Whether to draw all lines of all pages now, because nothing may come for long.
        """
        if is_last:
            for page in self._pages:
                self._draw(page, is_last=True)
        elif self._is_open and now >= self._due:
            self._draw(self._pages[-1])
            if not self._pages[0].lines:
                self._draw(self._pages[0])
            self._due = time.monotonic() + _INTERVAL

    def _split(self, text: str) -> tuple[str, list[str]]:
        """What goes to a stream, and the other lines."""
        if self._pages or self._lines_left <= 0 or self._characters_left <= 0:
            return "", text.split("\n")[:-1]
        count = text.count("\n")
        if count <= self._lines_left and len(text) <= self._characters_left:
            self._lines_left -= count
            self._characters_left -= len(text)
            return text, []
        first, lines = [], deque(text.split("\n")[:-1])
        while lines and self._lines_left > 0 and len(lines[0]) < self._characters_left:
            line = lines.popleft()
            self._lines_left -= 1
            self._characters_left -= len(line) + 1
            first.append(f"{line}\n")
        self._lines_left = 0
        return "".join(first), list(lines)

    def _add(self, lines: list[str]) -> None:
        if not self._is_open:
            self._count += 1
            self._pages.append(_Page(f"{self._prefix}-lines-{self._count}"))
            self._is_open = True
        self._pages[-1].lines.extend(lines)
        self._size += len(lines)
        self._characters += sum(map(len, lines))
        while self._size > MOST_LINES_IN_NOTEBOOK or (
            self._characters > MOST_CHARACTERS_IN_NOTEBOOK and self._size > 1
        ):
            self._drop()

    def _drop(self) -> None:
        """Drops the oldest line. The first page stays, since it says how many are left out."""
        page = next(page for page in self._pages if page.lines)
        self._characters -= len(page.lines.popleft())
        self._size -= 1
        self._dropped += 1
        if not page.lines and page is not self._pages[0]:
            self._draw(page, is_last=True)
            self._pages.remove(page)

    def _draw(self, page: _Page, *, is_last: bool = False) -> None:
        shown = list(page.lines) if is_last else list(page.lines)[-_MOST_LIVE_LINES:]
        left_out = self._dropped + (len(page.lines) - len(shown))
        if left_out and page is self._pages[0]:
            shown.insert(0, output_log.left_out(left_out, self._rest))
        text = "\n".join(shown)
        if text != page.drawn:
            self._screen.display({"text/plain": text}, {}, page.id, update=page.drawn is not None)
            page.drawn = text
