"""One panel of a job, in a tab of one page: what the page knows of the job, and what it has asked for."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from notebook_accel.errors import NotebookAccelError
from notebook_accel.jupyter.panel_update import PanelAnswer, PanelUpdate
from notebook_accel.launch.job.job import Job
from notebook_accel.panel.charts.chart_details import Reply
from notebook_accel.panel.merge_patch import diff
from notebook_accel.panel.panel_state import REQUESTS, StateMaker

INTERVAL, BUSY_INTERVAL, NO_MORE = 250, 40, -1
"""Milliseconds until the page asks again: usually, and while an answer is being made; or it doesn't by itself."""
SHARE = 0.03
"""The part of a core that one panel may take."""
_ANSWERING = 0.1
"""Seconds for which one call may make answers."""


class BadMessageError(NotebookAccelError):
    """A page has sent what no panel sends."""


class PanelSession:
    """Makes the updates of one panel."""

    def __init__(self, job: Job, stop: Callable[[int], object]) -> None:
        """Begins anew.

        Args:
            job: The job, which is kept up to date elsewhere.
            stop: Called with the number of clicks on Stop so far.
        """
        self._job = job
        self._stop = stop
        self._maker = StateMaker(job)
        self._state: Mapping[str, Any] | None = None
        """What was sent last; `None` if the page needs the whole state."""
        self._seq = -1
        """The number of the last update."""
        self._is_over = False
        """Whether the state of the ended job was sent."""
        self.last_used = time.monotonic()

    def handle(self, message: Mapping[str, Any]) -> None:
        """Does what the panel requests; see `notebook/views/panel.py` for the messages.

        Raises:
            BadMessageError: No panel sends such a message.
        """
        try:
            if message["cmd"] == "stop":
                self._stop(int(message["click"]))
            elif message["cmd"] in REQUESTS:
                self._maker.request(message)
                self._is_over = False  # also after the end, it may change what is shown
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadMessageError(f"the panel has sent a message that isn't valid: {error!r}") from error

    def update(self, seq: int) -> PanelUpdate:
        """What is new since the update that the page has.

        Args:
            seq: The number of that update. If it isn't the last one that was sent, the page gets the whole state.
        """
        self.last_used = time.monotonic()
        began = time.thread_time()
        found: PanelUpdate = {"seq": self._seq, "replies": [], "results": [], "pause": INTERVAL}
        if seq != self._seq:
            self._state, self._seq = None, max(seq, self._seq)  # the page ignores an update before its own
        self._add_state(found)
        deadline = time.monotonic() + _ANSWERING
        found["replies"] = list(self._replies(deadline))
        found["results"] = [_page(result) for result in self._maker.take_results()]
        pause = max(INTERVAL, round(1000 * (time.thread_time() - began) / SHARE))
        is_quiet = self._is_over and not self._maker.has_results_to_come
        found["pause"] = BUSY_INTERVAL if self._maker.is_answering else NO_MORE if is_quiet else pause
        return found

    def _add_state(self, found: PanelUpdate) -> None:
        is_over = self._job.status.ended
        if self._state is not None and self._is_over:
            return
        self._maker.update_metrics()
        state = self._maker.whole() if self._state is None or is_over else self._maker.make()
        if self._state is None:
            found["state"] = state
        else:
            patch = diff(self._state, state)
            if patch:
                found["patch"] = patch
        if "state" in found or "patch" in found:
            self._seq += 1
        self._state, self._is_over = state, is_over
        found["seq"] = self._seq

    def _replies(self, deadline: float) -> Iterator[PanelAnswer]:
        while (reply := self._maker.reply(at_once=False)) is not None:
            yield _answer(reply)
            if time.monotonic() > deadline:
                return


def _answer(reply: Reply) -> PanelAnswer:
    content, numbers = reply.buffers
    return {"id": reply.id, "content": content.decode(), "bytes": base64.b64encode(numbers).decode()}


def _page(result: Any) -> str:
    """A flame graph or a profile as HTML; the page shows it in a frame that has no access to anything."""
    return str(result._repr_html_())
