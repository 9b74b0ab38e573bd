"""Runs in SwanLab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain


class SwanLabTracker(RunTracker):
    """Logs to an experiment of a project; its keyword arguments are those of `swanlab.init`."""

    name = "swanlab"

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs all values that the experiment's `log` accepts."""
        super().log({key: plain(value) for key, value in values.items()}, step=step, **kwargs)

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs lists of arrays or PIL images; `kwargs` are for `swanlab.Image`."""
        import swanlab

        self.tracker.log(
            {key: [swanlab.Image(image, **kwargs) for image in each] for key, each in values.items()}, step
        )
