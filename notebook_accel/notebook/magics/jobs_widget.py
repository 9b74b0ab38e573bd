"""The widget whose front end is `extension/src/jobs.ts`: a table of jobs with buttons to stop and to show each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import traitlets

from notebook_accel.notebook.views.reload import FILES, PageWatch, PageWidget


class JobsWidget(PageWidget):
    """Shows rows, and passes clicks on."""

    _esm = (FILES / "jobs.js").read_text(encoding="utf-8")
    columns: traitlets.List[str] = traitlets.List().tag(sync=True)
    rows: traitlets.List[Mapping[str, Any]] = traitlets.List().tag(sync=True)

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        on_stop: Callable[[str], object],
        on_attach: Callable[[str], object],
    ) -> None:
        """Shows `rows`.

        Args:
            columns: The titles of the columns.
            rows: For each job its `id`, its `cells`, and whether it is `live`, newest first.
            on_stop: Called with the ID of the job to stop, on the thread that handles the browser's messages.
            on_attach: Called with the ID of the job to show, on the same thread.
        """
        self._handlers = {"stop": on_stop, "attach": on_attach}
        self._watch = PageWatch()
        super().__init__(self._watch.received, columns=list(columns), rows=list(rows))

    def update(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Sends the rows if they have changed, unless no page shows them any longer."""
        if self._watch.is_gone or self.rows == rows:
            return
        self._watch.sent()
        self.rows = list(rows)

    def _on_message(self, message: Mapping[str, Any]) -> None:
        handler = self._handlers.get(message.get("cmd", ""))
        if handler is not None:
            handler(str(message["job"]))
