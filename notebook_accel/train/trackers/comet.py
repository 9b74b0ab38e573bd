"""Runs in Comet."""

from __future__ import annotations

from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain, warn_skipped


class CometMLTracker(RunTracker):
    """Logs to an experiment of a project.

    Args:
        run_name: The name of the project.
        kwargs: Arguments of `comet_ml.start`.
    """

    name = "comet_ml"
    held = "writer"
    writer: Any

    def _open(self) -> Any:
        import comet_ml

        return comet_ml.start(project_name=self.run_name, **self._kwargs)

    def _close(self) -> None:
        self.writer.end()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer.log_parameters(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs numbers, texts, and dicts of numbers."""
        if step is not None:
            self.writer.set_step(step)
        for key, value in values.items():
            value = plain(value)
            if isinstance(value, (bool, int, float)):
                self.writer.log_metric(key, value, step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.log_other(key, value, **kwargs)
            elif isinstance(value, dict):
                self.writer.log_metrics(value, step=step, **kwargs)
            else:
                warn_skipped(self, key, value, "numbers, texts, and dicts of numbers")
