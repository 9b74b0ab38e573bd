"""The panel's widget, whose script is `extension/`, and what the views that show it share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import control_channel
from notebook_accel.panel.chart_requests import Reply
from notebook_accel.panel.merge_patch import diff
from notebook_accel.panel.pacing import JobPacer
from notebook_accel.panel.panel_state import REQUESTS, StateMaker

_FILES = Path(__file__).parent / "browser"
"""The widget's script and styles, built from `extension/`."""


class Panel(anywidget.AnyWidget):
    """Sends the state in full at first and whenever a browser requests it, and otherwise only changes."""

    _esm = (_FILES / "panel.js").read_text(encoding="utf-8")
    _css = (_FILES / "panel-style.css").read_text(encoding="utf-8")
    panel = traitlets.Unicode().tag(sync=True)
    """Its ID, which its messages on the control channel have."""
    keyframe = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        state: Mapping[str, Any],
        on_stop: Callable[[int], object],
        on_answer: Callable[[], object],
        on_seen: Callable[[], object] = lambda: None,
        on_request: Callable[[Mapping[str, Any]], object] = lambda message: None,
    ):
        """Shows `state`.

        Args:
            state: The state to draw, ready for JSON.
            on_stop: Called with the number of clicks so far, on the thread that handles the browser's messages.
            on_answer: Called on the same thread after any message from the browser.
            on_seen: Called after a message on the control channel, on the thread that handles it.
            on_request: Called with a message about what to show: `{"cmd": "stack", "rank": 3}` requests the stack of a
                rank, `{"cmd": "expanded", "ranks": [0, 3]}` tells which ranks are expanded, and
                `{"cmd": "charts", "metrics": ["loss"]}` which charts to draw; for those of an enlarged chart, see
                `chart_requests.py`, and for an open log, `log_requests.py`; or about what to do to the training:
                `{"cmd": "control", "action": "pause"}`.
        """
        self._state = state
        self._seq = 0
        self._on_stop, self._on_answer, self._on_seen, self._on_request = on_stop, on_answer, on_seen, on_request
        self._keyframe_requested = False
        self.id = uuid.uuid4().hex
        control_channel.listen(self.id, self)  # first, since a browser answers as soon as it has drawn the panel
        super().__init__(model_id=self.id, panel=self.id, keyframe={"seq": 0, "state": state})
        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 passes a click to the shell that last sent on this comm, but that is busy with the job.
            self.comm._reply_subshell_for = lambda data, default: default

    def open(self) -> None:
        """Opens the panel in the browser, whose answer another thread may handle at once."""
        self.on_msg(lambda _, content, buffers: self._on_message(content))
        super().open()

    def receive(self, content: Mapping[str, Any]) -> None:
        """Handles a message that came on the control channel, on that channel's thread."""
        if content.get("cmd") == "ready":
            self.send({"control": True})
        self._on_seen()
        self._on_message(content)

    def update(self, state: Mapping[str, Any]) -> int:
        """Sends the changes; returns their size in bytes."""
        patch = diff(self._state, state)
        self._state = state
        if not patch and not self._keyframe_requested:
            return 0
        self._seq += 1
        if self._keyframe_requested:
            self._keyframe_requested = False
            self.keyframe = {"seq": self._seq, "state": state}
            return len(_to_json(state))
        # Send bytes, since cleaning a dict in ipykernel would take longer than everything else.
        content = _to_json(patch)
        self.send({"seq": self._seq}, buffers=[content])
        return len(content)

    def answer(self, reply: Reply) -> int:
        """Sends the answer to an enlarged chart or an open log; returns its size in bytes."""
        self.send({"reply": reply.id}, buffers=reply.buffers)
        return reply.size

    def show_result(self, page: str) -> None:
        """Shows a flame graph or a profile, which is HTML."""
        self.send({"result": True}, buffers=[page.encode()])

    def ping(self) -> None:
        """Sends a message without changes, which the page answers if it is there."""
        self.send({"ping": True})

    def request_keyframe(self) -> None:
        """Makes the next update send the full state, as if a browser had requested it."""
        self._keyframe_requested = True

    @property
    def keyframe_requested(self) -> bool:
        """Whether a browser is waiting for the full state."""
        return self._keyframe_requested

    def _on_message(self, message: Mapping[str, Any]) -> None:
        cmd = message.get("cmd")
        if cmd == "stop":
            click = int(message["click"])
            self._on_stop(click)
            self.send({"ack": click})
        elif cmd == "ready":
            self._keyframe_requested = True  # another thread may be about to send
            self.send({"ack": 0})
        elif cmd in REQUESTS:
            self._on_request(message)
        self._on_answer()


class PanelView:
    """A view that shows a panel: what is the same wherever the browser draws it.

    Args:
        job: The job.
        pacer: Limits how often the panel is drawn.
    """

    _panel: Panel

    def __init__(self, job: Job, pacer: JobPacer) -> None:
        self._job = job
        self._maker = StateMaker(job)
        self._pacer = pacer
        self._finished = False
        self._results: list[Any] = []
        """The flame graphs and profiles that the user has made on the panel."""

    def _show_results(self) -> None:
        """Shows flame graphs and profiles that are ready."""
        for found in self._maker.take_results():
            self._results.append(found)
            self._panel.show_result(found._repr_html_())

    def _update(self) -> None:
        """Sends what has changed."""
        raise NotImplementedError

    def _update_if_due(self) -> None:
        """Sends what has changed, if that is due, and answers what the panel has asked for."""
        self._show_results()
        if self._pacer.is_due() or self._panel.keyframe_requested:
            with self._pacer:
                self._update()
        if reply := self._maker.reply():
            self._pacer.sent(self._panel.answer(reply))

    # Called on the threads that handle the browser's messages

    def _request(self, message: Mapping[str, Any]) -> None:
        self._maker.request(message)
        if self._finished and (reply := self._maker.reply(at_once=True)):
            self._panel.answer(reply)  # the job's driver no longer draws

    def _stop(self, click: int) -> None:
        # An interrupt for the same click may have arrived first.
        if click > self._job.stopping:
            self._job.cancel()


def _to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
