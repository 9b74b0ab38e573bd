"""Shows a job as a panel in the browser; when the job ends, static HTML replaces the panel."""

from __future__ import annotations

from typing import Any

from notebook_accel.launch.job.job import Job
from notebook_accel.notebook.views import widget_support
from notebook_accel.notebook.views.control_channel import PageWatch
from notebook_accel.notebook.views.panel import Panel, PanelView
from notebook_accel.panel import html_page
from notebook_accel.panel.pacing import JobPacer, Pacer

_INTERVAL = 0.1
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

        super().__init__(job, JobPacer(job, _INTERVAL, _SHARE, _RATE))
        self._fallback_pacer = Pacer(_FALLBACK_SECONDS)
        self._html_pacer = Pacer(_HTML_SECONDS)
        self._widget_shown = True
        self._has_heard = False
        """Whether the page has sent something since the kernel was last said to be busy."""
        self._watch = PageWatch()
        with self._pacer, self._fallback_pacer:
            widget_support.current.expect(self)  # first, since a browser answers as soon as it has drawn the panel
            self._panel = Panel(self._maker.whole(), self._stop, self._answered, self._watch.received, self._request)
            bundle, metadata = self._bundle()
            self._handle = display(  # type: ignore[no-untyped-call]
                bundle, metadata=metadata, raw=True, display_id=True
            )

    def refresh(self) -> None:
        if self._has_heard:
            self._has_heard = False
            widget_support.say_busy()
        self._maker.update_metrics()
        if self._watch.is_gone:
            self._ping_if_due()
            return
        self._update_if_due()
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
        self._show_results()
        self._keep_results()
        self._panel.update(self._maker.whole())  # in full, with every metric
        self._widget_shown = False
        self._show()
        widget_support.current.ended(self)
        self._panel.close()

    @property
    def is_seen(self) -> bool:
        return not self._watch.is_gone

    def _update(self) -> None:
        count = self._panel.update(self._maker.make())
        self._pacer.sent(count)
        if count:
            self._watch.sent()
        else:
            self._ping_if_due()

    def _ping_if_due(self) -> None:
        if self._watch.ping_is_due():
            self._panel.ping()
            self._watch.sent()

    def _keep_results(self) -> None:
        """Displays flame graphs and profiles below the panel, which ends, so that they stay in the notebook."""
        from IPython.display import display

        for found in self._results:
            display(found)  # type: ignore[no-untyped-call]

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

    # Called on the threads that handle the browser's messages

    def _answered(self) -> None:
        self._has_heard = True
        widget_support.current.answered(self)
