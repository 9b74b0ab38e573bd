"""Tasks in ClearML."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain, warn_skipped


class ClearMLTracker(RunTracker):
    """Logs to a task: the one that the user's code has opened, or one of its own.

    Args:
        run_name: The name of the project and of the task; `CLEARML_PROJECT` and `CLEARML_TASK` take precedence.
        kwargs: Arguments of `Task.init`.
    """

    name = "clearml"
    held = "task"
    task: Any
    _is_own = False

    def __init__(self, run_name: str | None = None, **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)

    def _open(self) -> Any:
        from clearml import Task

        task = Task.current_task()
        self._is_own = task is None
        names = {f"{kind}_name": os.environ.get(f"CLEARML_{kind.upper()}", self.run_name) for kind in _NAMED}
        return Task.init(**{**names, **self._kwargs}) if self._is_own else task

    def _close(self) -> None:
        if self._is_own:
            self.task.close()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.task.connect_configuration(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs numbers; `train_loss` is the series `train` of the plot `loss`."""
        logger = self.task.get_logger()
        for key, value in values.items():
            value = plain(value)
            if not isinstance(value, (bool, int, float)):
                warn_skipped(self, key, value, "numbers")
            elif step is None:
                logger.report_single_value(name=key, value=value, **kwargs)
            else:
                logger.report_scalar(**_place(key), value=value, iteration=step, **kwargs)

    @on_main_process
    def log_images(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs arrays or PIL images; `kwargs` are for the logger's `report_image`."""
        for key, value in values.items():
            self.task.get_logger().report_image(**_place(key), iteration=step, image=value, **kwargs)

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
        rows = dataframe if dataframe is not None else [*([columns] if columns else []), *(data or [])]
        self.task.get_logger().report_table(**_place(table_name), table_plot=rows, iteration=step, **kwargs)


_NAMED = ("project", "task")


def _place(key: str) -> dict[str, str]:
    """The plot and the series of a value."""
    series, _, title = key.partition("_")
    if series in ("eval", "test", "train") and title:
        return {"title": title, "series": series}
    return {"title": key, "series": "train"}
