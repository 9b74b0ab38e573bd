"""Shows a job as a panel in the browser; when the job ends, static HTML replaces the panel."""

from __future__ import annotations

from typing import Any

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import widget_support
from notebook_accel.notebook.views.control_channel import PageWatch
from notebook_accel.notebook.views.panel import Panel, PanelView
from notebook_accel.panel import html_page
from notebook_accel.panel.pacing import JobPacer, Pacer

INTERVAL = 0.1
"""Seconds between two updates, at least."""
_SHARE = 0.02
_RATE = 40_000
"""Bytes a second to the browser, without Jupyter's envelopes."""
_MARK = "notebook_accel"
"""In the metadata of an output with HTML for pages without the widget; as in `extension/lab/src/outputPlugin.ts`."""
_FALLBACK_SECONDS, _HTML_SECONDS = 20.0, 0.33


class WidgetView(PanelView):
    """Shows a widget, with HTML and text in the same output for front ends that do not draw the widget.

    The HTML and text are rarely redrawn, because the browser then creates the whole output again.
    """

    def __init__(self, job: Job) -> None:
        from IPython.display import display

        super().__init__(job, JobPacer(job, INTERVAL, _SHARE, _RATE))
        self._fallback_pacer = Pacer(_FALLBACK_SECONDS)
        self._html_pacer = Pacer(_HTML_SECONDS)
        self._widget_shown = True
        self._finished = False
        self._has_heard = False
        """Whether the page has sent something since the kernel was last said to be busy."""
        self._watch = PageWatch()
        with self._pacer, self._fallback_pacer:
            widget_support.current.expect(self)  # first, since a browser answers as soon as it has drawn the panel
            self._panel = Panel(self._session, self._received)
            bundle, metadata = self._bundle()
            self._handle = display(  # type: ignore[no-untyped-call]
                bundle, metadata=metadata, raw=True, display_id=True
            )

    def refresh(self) -> None:
        if self._has_heard:
            self._has_heard = False
            widget_support.say_busy()
        self._session.look()
        if not self._watch.is_gone and self._push_if_due():
            self._watch.sent()
        elif self._watch.ping_is_due():
            self._panel.push({})
            self._watch.sent()
        if self._watch.is_gone:
            return
        silent = widget_support.current.is_silent(self)
        pacer = self._html_pacer if silent else self._fallback_pacer
        if pacer.is_due() or self._widget_shown is silent:
            with pacer:
                self._widget_shown = not silent
                self._show()

    def finish(self) -> None:
        from IPython.display import display

        if self._finished:
            return
        self._finished = True
        self._push_answers()
        for result in self._session.results:
            display(result)  # type: ignore[no-untyped-call]  # below the panel, which ends, so that they stay
        self._push_changes()
        self._widget_shown = False
        self._show()
        widget_support.current.ended(self)
        self._panel.close()

    @property
    def is_seen(self) -> bool:
        return not self._watch.is_gone

    def _show(self) -> None:
        bundle, metadata = self._bundle()
        self._handle.update(bundle, metadata=metadata, raw=True)

    def _bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        fallback = dict(html_page.bundle(self._job, fallback=self._widget_shown))
        if not self._widget_shown:
            return fallback, {}
        # Use the widget's own bundle, since some front ends need the metadata that it contains.
        made: Any = self._panel._repr_mimebundle_()
        bundle, metadata = made if isinstance(made, tuple) else (made, {})
        return {**bundle, **fallback}, {**metadata, _MARK: {}}

    def _received(self, is_control: bool) -> None:
        """Called after each message, on the thread that handles it."""
        if is_control:
            self._watch.received()
        self._has_heard = True
        widget_support.current.answered(self)
