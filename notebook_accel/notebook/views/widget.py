"""Shows a job as a panel in the browser; when the job ends, static HTML replaces the panel."""

from __future__ import annotations

from typing import Any

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import html_view, widget_support
from notebook_accel.notebook.views.pacing import Pacer
from notebook_accel.notebook.views.panel import Panel
from notebook_accel.notebook.views.panel_state import StateMaker
from notebook_accel.notebook.views.urgent_changes import UrgentChanges

_INTERVAL = 0.1
_SHARE = 0.02
_RATE = 40_000
"""Bytes a second to the browser, without Jupyter's envelopes."""
_FALLBACK_SECONDS, _HTML_SECONDS = 20.0, 0.33


class WidgetView:
    """Shows a widget, with HTML and text in the same output for front ends that do not draw the widget.

    The HTML and text are rarely redrawn, because the browser then creates the whole output again.
    """

    def __init__(self, job: Job) -> None:
        from IPython.display import display

        self._job = job
        self._maker = StateMaker(job)
        self._urgent = UrgentChanges(job)
        self._pacer = Pacer(_INTERVAL, _SHARE, _RATE)
        self._fallback_pacer = Pacer(_FALLBACK_SECONDS)
        self._html_pacer = Pacer(_HTML_SECONDS)
        self._widget_shown = True
        self._finished = False
        with self._pacer, self._fallback_pacer:
            widget_support.current.expect(self)  # first, since a browser answers as soon as it has drawn the panel
            self._panel = Panel(self._maker.whole(), self._stop, self._answered)
            bundle, metadata = self._bundle()
            self._handle = display(  # type: ignore[no-untyped-call]
                bundle, metadata=metadata, raw=True, display_id=True
            )

    def refresh(self) -> None:
        self._maker.update_metrics()
        if self._pacer.is_due() or self._panel.keyframe_requested or self._urgent.any:
            self._urgent.mark_shown()
            with self._pacer:
                self._pacer.sent(self._panel.update(self._maker.make()))
        silent = widget_support.current.is_silent(self)
        pacer = self._html_pacer if silent else self._fallback_pacer
        if pacer.is_due() or self._widget_shown is silent:
            with pacer:
                self._widget_shown = not silent
                self._show()

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        # In full, with every metric: on a page that was loaded again, the panel stays as it is now.
        self._panel.update(self._maker.whole())
        self._widget_shown = False
        self._show()
        # If the panel closed before a browser has answered, the kernel would log an answer without a receiver.
        widget_support.current.when_settled(self, self._panel.close)

    def _show(self) -> None:
        bundle, metadata = self._bundle()
        self._handle.update(bundle, metadata=metadata, raw=True)

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        fallback = dict(html_view.draw(self._job, fallback=self._widget_shown))
        if not self._widget_shown:
            return fallback, {}
        # Use the widget's own bundle, since some front ends need the metadata that it contains.
        made: Any = self._panel._repr_mimebundle_()
        bundle, metadata = made if isinstance(made, tuple) else (made, {})
        return {**bundle, **fallback}, metadata

    # Called on the thread that handles the browser's messages

    def _answered(self) -> None:
        widget_support.current.answered(self)

    def _stop(self, click: int) -> None:
        # An interrupt for the same click may have arrived first.
        if click > self._job.stopping:
            self._job.cancel()
