"""A widget whose messages arrive also while a cell runs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from notebook_accel.notebook.views.reload import control_channel

FILES = Path(__file__).parents[1] / "browser"
"""The scripts of the widgets, built from `extension/`."""


class PageWidget(anywidget.AnyWidget):
    """Handles what the page sends, on the widget's own channel and on the kernel's control channel."""

    _css = (FILES / "panel-style.css").read_text(encoding="utf-8")
    place = traitlets.Dict().tag(sync=True)
    """Where the widget belongs: its own `id`, the ids of `former` ones whose output it takes over, and the `cell`."""

    def __init__(
        self, on_page: Callable[[str, str], object], former: Sequence[str] = (), cell: str = "", **state: Any
    ) -> None:
        """Opens the widget.

        Args:
            on_page: Called with `seen`, `left`, or `opened`, and what identifies the page, on the thread that handles
                its messages: the page shows the widget, is being closed or reloaded, or is a further page, which lacks
                the widget.
            former: The ids of earlier widgets in the same place.
            cell: The id of the notebook's cell below which the widget belongs, if it is known.
            state: What the browser gets.
        """
        self._on_page = on_page
        self.id = uuid.uuid4().hex
        control_channel.listen(self.id, self)  # first, since a browser answers as soon as it has drawn the widget
        super().__init__(model_id=self.id, place={"id": self.id, "former": list(former), "cell": cell}, **state)
        if hasattr(self.comm, "_reply_subshell_for"):
            # ipykernel 7.4 passes a click to the shell that last sent on this comm, but that is busy with the job.
            self.comm._reply_subshell_for = lambda data, default: default

    def open(self) -> None:
        """Opens the widget in the browser, whose answer another thread may handle at once."""
        self.on_msg(lambda _, content, buffers: self._on_message(content))
        super().open()

    def receive(self, page: str, content: Mapping[str, Any]) -> None:
        """Handles a message that came on the control channel, on that channel's thread."""
        cmd = content.get("cmd")
        if cmd in ("left", "opened"):
            self._on_page(cmd, page)
            return
        if cmd == "ready":
            self.send({"control": True})
        self._on_page("seen", page)
        self._on_message(content)

    def _on_message(self, message: Mapping[str, Any]) -> None:
        """Handles any other message of the page."""
        raise NotImplementedError
