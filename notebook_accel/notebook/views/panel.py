"""The widget whose front end is `extension/`. Sends the state to the browser, and handles its messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from notebook_accel.notebook.views.merge_patch import diff

_FILES = Path(__file__).parent / "browser"


class Panel(anywidget.AnyWidget):
    """Sends the state in full at first and whenever a browser requests it, and otherwise only changes."""

    _esm = (_FILES / "panel.js").read_text(encoding="utf-8")
    _css = (_FILES / "panel-style.css").read_text(encoding="utf-8")
    keyframe = traitlets.Dict().tag(sync=True)

    def __init__(self, state: Mapping[str, Any], on_stop: Callable[[int], object], on_answer: Callable[[], object]):
        """Shows `state`.

        Args:
            state: The state to draw, ready for JSON.
            on_stop: Called with the number of clicks so far, on the thread that handles the browser's messages.
            on_answer: Called on the same thread after any message from the browser.
        """
        self._state = state
        self._seq = 0
        self._on_stop, self._on_answer = on_stop, on_answer
        self._keyframe_requested = False
        super().__init__(keyframe={"seq": 0, "state": state})
        self.on_msg(self._on_message)
        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 passes a click to the shell that last sent on this comm, but that is busy with the job.
            self.comm._reply_subshell_for = lambda data, default: default

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

    def request_keyframe(self) -> None:
        """Has the next update send the full state, as if a browser had asked for it."""
        self._keyframe_requested = True

    @property
    def keyframe_requested(self) -> bool:
        """Whether a browser is waiting for the full state."""
        return self._keyframe_requested

    def _on_message(self, _: object, message: Mapping[str, Any], buffers: object) -> None:
        del buffers
        if message.get("cmd") == "stop":
            click = int(message["click"])
            self._on_stop(click)
            self.send({"ack": click})
        elif message.get("cmd") == "ready":
            self._keyframe_requested = True  # another thread may be about to send
            self.send({"ack": 0})
        self._on_answer()


def _to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
