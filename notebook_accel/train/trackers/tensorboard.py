"""Runs in TensorBoard's event files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain, warn_skipped


class TensorBoardTracker(RunTracker):
    """Writes event files into `logging_dir/run_name`.

    Args:
        run_name: The run's folder.
        logging_dir: The folder for runs.
        kwargs: Arguments of `torch.utils.tensorboard.SummaryWriter`.
    """

    name = "tensorboard"
    requires_logging_directory = True
    held = "writer"
    writer: Any

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self.logging_dir = Path(logging_dir) / run_name

    def _open(self) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.logging_dir), **self._kwargs)

    def _close(self) -> None:
        self.writer.close()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Shows the settings in the dashboard, and stores them in `hparams.yml` next to the event files."""
        shown = {name: plain(value) for name, value in values.items()}
        shown = {name: v if isinstance(v, (bool, int, float, str)) else str(v) for name, v in shown.items()}
        self.writer.add_hparams(shown, metric_dict={}, run_name=".")
        self.writer.flush()
        # JSON is valid YAML.
        (self.logging_dir / "hparams.yml").write_text(json.dumps(shown, indent=2) + "\n", encoding="utf-8")

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs numbers and texts; dicts of numbers become several lines of one plot."""
        for key, value in values.items():
            value = plain(value)
            if isinstance(value, (bool, int, float)):
                self.writer.add_scalar(key, value, global_step=step, **kwargs)
            elif isinstance(value, str):
                self.writer.add_text(key, value, global_step=step, **kwargs)
            elif isinstance(value, dict):
                lines = {name: plain(each) for name, each in value.items()}
                self.writer.add_scalars(key, lines, global_step=step, **kwargs)
            else:
                warn_skipped(self, key, value, "numbers, texts, and dicts of numbers")
        self.writer.flush()

    @on_main_process
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs batches of images; `dataformats="NHWC"` for those with channels last."""
        for key, images in values.items():
            self.writer.add_images(key, images, global_step=step, **kwargs)
