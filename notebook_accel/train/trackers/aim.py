"""Runs in Aim."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain


class AimTracker(RunTracker):
    """Logs to a run in a repository of Aim's.

    Args:
        run_name: The name of the run.
        logging_dir: The folder of the repository.
        kwargs: Arguments of `aim.Run`.
    """

    name = "aim"
    requires_logging_directory = True
    held = "writer"
    writer: Any

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str] | None = ".", **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self.aim_repo_path = logging_dir

    def _open(self) -> Any:
        import aim

        repository = None if self.aim_repo_path is None else os.fspath(self.aim_repo_path)
        run = aim.Run(repo=repository, **self._kwargs)
        run.name = self.run_name
        return run

    def _close(self) -> None:
        self.writer.close()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer["hparams"] = values

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs all values that the run's `track` accepts."""
        for key, value in values.items():
            self.writer.track(plain(value), name=key, step=step, **kwargs)

    @on_main_process
    def log_images(
        self, values: Mapping[str, Any], step: int | None = None, kwargs: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        """Logs arrays or PIL images, or pairs of one and its caption.

        Args:
            values: The images, by name.
            step: The step.
            kwargs: Arguments of `aim.Image`, under `aim_image`, and of the run's `track`, under `track`.
        """
        import aim

        options = kwargs or {}
        for key, value in values.items():
            image, caption = value if isinstance(value, tuple) else (value, "")
            drawn = aim.Image(image, caption=caption, **options.get("aim_image", {}))
            self.writer.track(drawn, name=key, step=step, **options.get("track", {}))
