"""The base of trackers whose service opens a run with `init(project=...)` and takes dicts of values: W&B, Trackio."""

from __future__ import annotations

import importlib
from typing import Any

from notebook_accel.train.trackers.base import GeneralTracker, on_main_process


class RunTracker(GeneralTracker):
    """Logs to a run of a project. A subclass sets `name`, which is also the name of the package to import.

    Args:
        run_name: The name of the project.
        kwargs: Arguments of the service's `init`.
    """

    requires_logging_directory = False

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.run: Any = None
        self._kwargs = kwargs

    @on_main_process
    def start(self) -> None:
        self.run = importlib.import_module(self.name).init(project=self.run_name, **self._kwargs)

    @property
    def tracker(self) -> Any:
        """The service's own run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs all values that the run's `log` accepts."""
        self.run.log(values, step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
