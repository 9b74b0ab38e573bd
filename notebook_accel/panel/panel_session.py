"""One panel that a page shows: takes what the page sends, and says what is new for it, however that gets there.

A page keeps the state that it has, and its number. It gets the whole state first and whenever it has missed something,
and otherwise changes. A kernel sends updates to its widget by itself (`notebook/views/panel.py`); a page of JupyterLab
asks its server for them (`jupyter/reader/panels.py`). In the browser, both come to `extension/src/jobLink.ts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel.launch.job.job import Job
from notebook_accel.panel.chart_requests import ChartDetails
from notebook_accel.panel.log_requests import LogRequests
from notebook_accel.panel.merge_patch import diff
from notebook_accel.panel.panel_model import PanelUpdate, State
from notebook_accel.panel.panel_state import REQUESTS, StateMaker
from notebook_accel.panel.questions import Questions


class PanelSession:
    """What one panel has and has asked for.

    Args:
        job: The job, which is kept up to date elsewhere.
        stop: Called with the number of clicks on Stop so far, on the thread that handles the message.
    """

    def __init__(self, job: Job, stop: Callable[[int], object]) -> None:
        self._job = job
        self._stop = stop
        self._maker = StateMaker(job)
        self._questions = Questions(ChartDetails(job), LogRequests(job))
        self._state: State | None = None
        """What was sent last."""
        self._seq = -1
        """The number of that state."""
        self._is_over = False
        """Whether the state of the ended job was sent."""
        self.needs_whole = True
        """Whether the page needs the whole state."""
        self.results: list[Any] = []
        """The flame graphs and profiles that the page has got."""

    def handle(self, message: Mapping[str, Any]) -> PanelUpdate:
        """Does what a page sends, and returns what acknowledges it, if anything does. Any thread may call it.

        A page sends `{"cmd": "ready"}` if it needs the whole state, `{"cmd": "stop", "click": 1}` with the number of
        clicks so far, the questions of charts and logs (`chart_requests.py`, `log_requests.py`), and what
        `StateMaker.request` does. Another command only says that the page is there.
        """
        cmd = message["cmd"]
        if cmd == "ready":
            self.needs_whole = True  # another thread may be making a state
            return {"ack": 0}
        if cmd == "stop":
            click = int(message["click"])
            self._stop(click)
            return {"ack": click}
        if not self._questions.take(message) and cmd in REQUESTS:
            self._maker.request(message)
            self._is_over = False  # also after the end, it may change what is shown
        return {}

    def look(self) -> None:
        """Redraws the charts, at a limited rate."""
        self._maker.update_metrics()

    def changes(self, has: int | None = None) -> PanelUpdate:
        """The changes of the state, or the whole state if the page needs it; empty if nothing has changed.

        Args:
            has: The number of the state that the page has, if it says it.
        """
        if has is not None and has != self._seq:
            self.needs_whole, self._seq = True, max(has, self._seq)  # the page ignores an update before its own
        is_whole = self.needs_whole
        if is_whole:
            self.needs_whole = False
        if self._is_over and not is_whole:
            return {}
        before, self._is_over = self._state, self._job.status.ended
        self._state = self._maker.whole() if before is None or self._is_over else self._maker.make()
        if before is None or is_whole:
            self._seq += 1
            return {"seq": self._seq, "state": self._state}
        patch = diff(before, self._state)
        if not patch:
            return {}
        self._seq += 1
        return {"seq": self._seq, "patch": patch}

    def answers(self, seconds: float = 0.0, *, at_once: bool = False) -> tuple[PanelUpdate, list[bytes]]:
        """What the page has asked for and is ready, and the numbers that follow each reply; empty if nothing is.

        Args:
            seconds: How long replies may be made; one is in any case.
            at_once: Whether a reply reads all that it takes, rather than a part at each call.
        """
        found: PanelUpdate = {}
        results = list(self._maker.take_results())
        if results:
            self.results += results
            found["results"] = [str(result._repr_html_()) for result in results]
        deadline, replies = time.monotonic() + seconds, []
        while (reply := self._questions.reply(at_once=at_once)) is not None:
            replies.append(reply)
            if time.monotonic() > deadline:
                break
        if replies:
            found["replies"] = [reply.content for reply in replies]
        return found, [reply.numbers for reply in replies]

    @property
    def is_answering(self) -> bool:
        """Whether an answer is being made, so that `answers` soon has it."""
        return self._questions.is_answering

    @property
    def is_quiet(self) -> bool:
        """Whether nothing changes from now on, unless the page asks for it."""
        return self._is_over and not self.needs_whole and not self._maker.has_results_to_come
