"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process


class WandBTracker(RunTracker):
    """Logs to a run of a project; its keyword arguments are those of `wandb.init`."""

    name = "wandb"

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.tracker.config.update(values, allow_val_change=True)

    @on_main_process
    def log_images(self, values: dict[str, Sequence[Any]], step: int | None = None, **kwargs: Any) -> None:
        """Logs lists of arrays or PIL images; `kwargs` are for `wandb.Image`."""
        import wandb

        self.tracker.log(
            {key: [wandb.Image(image, **kwargs) for image in each] for key, each in values.items()}, step=step
        )

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
        """Logs a table, given as columns and rows or as a data frame."""
        import wandb

        table = wandb.Table(columns=columns, data=data, dataframe=dataframe)
        self.tracker.log({table_name: table}, step=step, **kwargs)
