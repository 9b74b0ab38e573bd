"""The IPython shell of a rank, which sends what is displayed to the driver. Imports IPython, so it is imported late."""

from __future__ import annotations

import contextlib
import json
import sys
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from notebook_accel import events
from notebook_accel.events import Cleared, Shown
from notebook_accel.launch.wire import pipe_marks


class Publisher(DisplayPublisher):
    """Sends what is displayed to the driver, in its place among what the rank has written."""

    def publish(self, data: Mapping[str, Any], metadata: Any = None, *args: Any, **options: Any) -> None:
        if not events.has_sink():  # in a worker that the rank has started
            sys.stdout.write(f"{data.get('text/plain', '')}\n")
            return
        assert isinstance(self.shell, DisplayShell)
        alone, content = self.shell.shows_alone, b""
        if self.shell.is_shown:
            content = encode(data, metadata)
        display_id = (options.get("transient") or {}).get("display_id")
        update = bool(options.get("update"))
        _flush()
        pipe_marks.emit(lambda mark: Shown(display_id, update, alone, mark, [content] if content else []))

    def clear_output(self, wait: bool = False) -> None:
        _flush()
        pipe_marks.emit(lambda mark: Cleared(bool(wait), mark))


def encode(data: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> bytes:
    """A MIME bundle as the event `Shown` carries it."""
    return json.dumps({"data": data, "metadata": metadata or {}}, default=_plain).encode()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the user may have replaced it
            stream.flush()


def _plain(value: Any) -> Any:
    """Encodes binary data as text, as in a notebook."""
    return b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)


class DisplayShell(InteractiveShell):
    """A shell without a screen."""

    display_pub_class = Type(Publisher)
    is_shown = True
    """Whether this rank's rich values are shown."""
    shows_alone = False
    """Whether no other rank's are."""

    @property
    def formatter(self) -> Any:
        """What makes displays of values."""
        return self.display_formatter

    def enable_gui(self, gui: str | None = None) -> None:
        """Does nothing: there is no screen, and figures go to the notebook."""

    def init_virtualenv(self) -> None:
        """Does nothing: `sys.path` is the notebook's."""


def configuration() -> Config:
    """The configuration of a shell on a rank: without a history."""
    config = Config()
    config.HistoryManager.enabled = False
    return config


def ensure() -> None:
    """Creates the shell of a rank that has none."""
    if InteractiveShell.initialized():
        return
    shell = DisplayShell.instance(config=configuration(), user_module=sys.modules["__main__"], user_ns={})
    # The figures of pyplot need it. It was imported before there was a shell, so it could not attach itself to one.
    inline: Any = sys.modules.get("matplotlib_inline.backend_inline")
    if inline is not None:
        inline.configure_inline_support(shell, "inline")
