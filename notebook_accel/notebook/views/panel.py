"""The panel's widget, whose script is `extension/`, and what the views that show it share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import control_channel
from notebook_accel.panel.pacing import JobPacer
from notebook_accel.panel.panel_model import PanelUpdate
from notebook_accel.panel.panel_session import PanelSession

_FILES = Path(__file__).parent / "browser"
"""The widget's script and styles, built from `extension/`."""


class Panel(anywidget.AnyWidget):
    """Carries the messages of a session: an update with the whole state as a field, and others as messages."""

    _esm = (_FILES / "panel.js").read_text(encoding="utf-8")
    _css = (_FILES / "panel-style.css").read_text(encoding="utf-8")
    panel = traitlets.Unicode().tag(sync=True)
    """Its ID, which its messages on the control channel have."""
    keyframe = traitlets.Dict().tag(sync=True)
    """The last update with the whole state, which a page begins with that opens the panel later."""

    def __init__(self, session: PanelSession, received: Callable[[bool], object] = lambda _: None):
        """Shows the state of a job.

        Args:
            session: Makes the updates, and handles the messages of the page on the thread that receives them.
            received: Called on the same thread after each message, with whether it came on the control channel.
        """
        self._session, self._received = session, received
        self.id = uuid.uuid4().hex
        control_channel.listen(self.id, self)  # first, since a browser answers as soon as it has drawn the panel
        super().__init__(model_id=self.id, panel=self.id, keyframe=session.changes())
        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 passes a click to the shell that last sent on this comm, but that is busy with the job.
            self.comm._reply_subshell_for = lambda data, default: default

    def open(self) -> None:
        """Opens the panel in the browser, whose answer another thread may handle at once."""
        self.on_msg(lambda _, content, buffers: self._handle(content, is_control=False))
        super().open()

    def receive(self, content: Mapping[str, Any]) -> None:
        """Handles a message that came on the control channel, on that channel's thread."""
        self._handle(content, is_control=True)

    def push(self, update: PanelUpdate, buffers: Sequence[bytes] = ()) -> int:
        """Sends an update; returns its size in bytes."""
        content = json.dumps(update, separators=(",", ":"), ensure_ascii=False).encode()
        if "state" in update:
            self.keyframe = dict(update)
        else:
            # Send bytes, since cleaning a dict in ipykernel would take longer than everything else.
            self.send({}, buffers=[content, *buffers])
        return len(content) + sum(map(len, buffers))

    def _handle(self, message: Mapping[str, Any], *, is_control: bool) -> None:
        update = self._session.handle(message)
        if update:
            self.push({**update, "control": True} if is_control else update)
        self._received(is_control)


class PanelView:
    """A view that shows a panel: what is the same wherever the browser draws it.

    Args:
        job: The job.
        pacer: Limits how often the panel is drawn.
    """

    _panel: Panel

    def __init__(self, job: Job, pacer: JobPacer) -> None:
        self._job = job
        self._session = PanelSession(job, self._stop)
        self._pacer = pacer

    def _push_if_due(self) -> bool:
        """Sends what has changed, if that is due, and what the page has asked for; returns whether anything was."""
        is_due = self._pacer.is_due() or self._session.needs_whole
        count = self._push_answers()
        if is_due:
            with self._pacer:
                count += self._push_changes()
                self._pacer.sent(count)
        return count > 0

    def _push_changes(self) -> int:
        update = self._session.changes()
        return self._panel.push(update) if update else 0

    def _push_answers(self, *, at_once: bool = False) -> int:
        update, numbers = self._session.answers(at_once=at_once)
        return self._panel.push(update, numbers) if update else 0

    def _stop(self, click: int) -> None:
        # An interrupt for the same click may have arrived first.
        if click > self._job.stopping:
            self._job.cancel()
