"""Runs in Trackio."""

from __future__ import annotations

from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain


class TrackioTracker(RunTracker):
    """Logs to a run of a project; its keyword arguments are those of `trackio.init`."""

    name = "trackio"

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs all values that `Run.log` accepts."""
        super().log({key: plain(value) for key, value in values.items()}, step=step, **kwargs)
