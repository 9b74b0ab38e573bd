"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from notebook_accel.train.trackers.base import GeneralTracker, on_main_process


class WandBTracker(GeneralTracker):
    """Logs to a run of a project.

    Args:
        run_name: The project.
        kwargs: For `wandb.init`.
    """

    name = "wandb"
    requires_logging_directory = False

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        super().__init__()
        self.run_name = run_name
        self.run: Any = None
        self._kwargs = kwargs

    @on_main_process
    def start(self) -> None:
        import wandb

        self.run = wandb.init(project=self.run_name, **self._kwargs)

    @property
    def tracker(self) -> Any:
        """The `wandb` run."""
        return self.run

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values, allow_val_change=True)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs whatever `Run.log` takes."""
        self.run.log(values, step=step, **kwargs)

    @on_main_process
    def log_images(self, values: dict[str, Sequence[Any]], step: int | None = None, **kwargs: Any) -> None:
        """Logs lists of arrays or PIL images; `kwargs` are for `wandb.Image`."""
        import wandb

        self.run.log({key: [wandb.Image(image, **kwargs) for image in each] for key, each in values.items()}, step=step)

    @on_main_process
    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Logs a table, given by its columns and rows or as a data frame."""
        import wandb

        table = wandb.Table(columns=columns, data=data, dataframe=dataframe)
        self.run.log({table_name: table}, step=step, **kwargs)

    @on_main_process
    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()
