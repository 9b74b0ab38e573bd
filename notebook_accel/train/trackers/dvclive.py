"""Runs in DVCLive."""

from __future__ import annotations

from typing import Any

from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain, warn_skipped


class DVCLiveTracker(RunTracker):
    """Logs to a `dvclive.Live`.

    Args:
        run_name: Not used: DVC names its experiments.
        live: The user's own.
        kwargs: Arguments of `dvclive.Live`, if there is none.
    """

    name = "dvclive"
    held = "live"

    def __init__(self, run_name: str | None = None, live: Any = None, **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self.live = live

    def _open(self) -> Any:
        import dvclive

        return self.live if self.live is not None else dvclive.Live(**self._kwargs)

    def _close(self) -> None:
        self.live.end()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.live.log_params(values)

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs numbers and texts, and ends the step."""
        if step is not None:
            self.live.step = step
        for key, value in values.items():
            value = plain(value)
            if isinstance(value, (bool, int, float, str)):
                self.live.log_metric(key, value, **kwargs)
            else:
                warn_skipped(self, key, value, "numbers and texts")
        self.live.next_step()
