"""Runs in Trackio."""

from __future__ import annotations

from typing import Any

from notebook_accel.train.trackers.base import GeneralTracker, on_main_process, plain


class TrackioTracker(GeneralTracker):
    """Logs to a run of a project.

    Args:
        run_name: The project.
        kwargs: For `trackio.init`.
    """

    name = "trackio"
    requires_logging_directory = False

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.run: Any = None
        self._kwargs = kwargs

    @on_main_process
    def start(self) -> None:
        import trackio

        self.run = trackio.init(project=self.run_name, **self._kwargs)

    @property
    def tracker(self) -> Any:
        """The `trackio` run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs whatever `Run.log` takes."""
        self.run.log({key: plain(value) for key, value in values.items()}, step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
