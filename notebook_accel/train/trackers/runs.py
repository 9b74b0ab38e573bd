"""What trackers have in common whose service makes a run of a project, and takes whole dicts of values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from notebook_accel.train.trackers.base import GeneralTracker, on_main_process


class RunTracker(GeneralTracker, ABC):
    """Logs to a run of a project.

    Args:
        run_name: The project.
        kwargs: For the service's `init`.
    """

    requires_logging_directory = False

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.run: Any = None
        self._kwargs = kwargs

    @abstractmethod
    def _open(self, project: str, **kwargs: Any) -> Any:
        """The service's own run."""

    @on_main_process
    def start(self) -> None:
        self.run = self._open(self.run_name, **self._kwargs)

    @property
    def tracker(self) -> Any:
        """The service's own run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs whatever the run's `log` takes."""
        self.run.log(values, step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
