"""Runs in MLflow."""

from __future__ import annotations

import json
import os
from typing import Any

from notebook_accel.events import as_float
from notebook_accel.train.ranks import environment
from notebook_accel.train.trackers.base import RunTracker, on_main_process, plain, warn_skipped

_PARAMS_PER_CALL = 100


class MLflowTracker(RunTracker):
    """Logs to a run of an experiment, at the tracking server that MLflow is set to.

    MLflow's variables `MLFLOW_EXPERIMENT_NAME`, `MLFLOW_RUN_ID`, `MLFLOW_TAGS` (JSON) and `MLFLOW_NESTED_RUN` override
    the arguments.

    Args:
        experiment_name: The experiment, which is created if it does not exist.
        logging_dir: The folder for the artifacts of a new experiment.
        run_id: A run to continue.
        tags: Tags of the run, and of a new experiment.
        nested_run: Whether the run is nested in an open run.
        run_name: The name of a new run.
        description: The description of the run.
    """

    name = "mlflow"
    held = "active_run"
    active_run: Any

    def __init__(
        self,
        experiment_name: str | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        tags: dict[str, Any] | str | None = None,
        nested_run: bool = False,
        run_name: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(run_name)
        self.experiment_name = os.environ.get("MLFLOW_EXPERIMENT_NAME", experiment_name)
        self.logging_dir = logging_dir
        self.run_id = os.environ.get("MLFLOW_RUN_ID", run_id)
        tags = os.environ.get("MLFLOW_TAGS", tags)
        self.tags = json.loads(tags) if isinstance(tags, str) else tags
        self.nested_run = environment.flag(os.environ, "MLFLOW_NESTED_RUN", nested_run)
        self.description = description

    def _open(self) -> Any:
        import mlflow

        experiment = mlflow.get_experiment_by_name(self.experiment_name)
        artifact_location = None if self.logging_dir is None else str(self.logging_dir)
        return mlflow.start_run(
            run_id=self.run_id,
            experiment_id=experiment.experiment_id
            if experiment is not None
            else mlflow.create_experiment(self.experiment_name, artifact_location=artifact_location, tags=self.tags),
            run_name=self.run_name,
            nested=self.nested_run,
            tags=self.tags,
            description=self.description,
        )

    def _close(self) -> None:
        import mlflow

        mlflow.end_run()

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Stores the settings as parameters; skips texts that are longer than MLflow allows, with a warning."""
        import mlflow
        from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH

        logged = {key: value for key, value in values.items() if len(str(value)) <= MAX_PARAM_VAL_LENGTH}
        for key in values.keys() - logged.keys():
            warn_skipped(self, key, values[key], f"settings of up to {MAX_PARAM_VAL_LENGTH} characters")
        items = list(logged.items())
        for start in range(0, len(items), _PARAMS_PER_CALL):
            mlflow.log_params(dict(items[start : start + _PARAMS_PER_CALL]))

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Logs numbers."""
        import mlflow

        metrics = {}
        for key, value in values.items():
            number = plain(value)
            if isinstance(number, (bool, int, float)):
                metrics[key] = as_float(number)
            else:
                warn_skipped(self, key, value, "numbers")
        mlflow.log_metrics(metrics, step=step, **kwargs)

    @on_main_process
    def log_figure(self, figure: Any, artifact_file: str, **save_kwargs: Any) -> None:
        """Stores a matplotlib or plotly figure as a file of the run."""
        import mlflow

        mlflow.log_figure(figure, artifact_file, **save_kwargs)

    @on_main_process
    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Stores a file with the run."""
        import mlflow

        mlflow.log_artifact(local_path, artifact_path)

    @on_main_process
    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Stores the files of a folder with the run."""
        import mlflow

        mlflow.log_artifacts(local_dir, artifact_path)
