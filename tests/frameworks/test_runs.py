"""Maps over a data set and into Parquet files, and a sweep that a study of Optuna leads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from pyarrow import parquet

from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver import map_output
from notebook_accel.launch.driver.map_work import FailedItem
from notebook_accel.launch.wire import map_call
from tests.frameworks.conftest import LONG
from tests.live_notebook import Notebook

MAP = """
import os
from datasets import Dataset

data = Dataset.from_dict({"text": [f"text {number}" for number in range(100)]})

def shout(row):
    return {"text": row["text"].upper(), "length": len(row["text"])}
"""
SWEEP = """
import time
import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(
    sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.ThresholdPruner(upper=2)
)
for lr, kind in ((0.5, "good"), (0.25, "slow"), (1.0, "bad")):
    study.enqueue_trial({"lr": lr, "kind": kind})

def train(lr, kind):
    if kind == "bad":
        raise ValueError("bad")
    for step in range(3):
        report({"val/loss": 3 * (kind == "slow") + lr / (1 + step)}, step=step)
    while kind == "slow":  # until it is stopped
        time.sleep(0.01)
    return lr

space = {"lr": optuna.distributions.FloatDistribution(0, 1), "kind": ["good", "slow", "bad"]}
runs = sweep(train, space, n=3, study=study, metric="val/loss", at_once=2, device="cpu")
"""


@dataclass
class Answer:
    text: str
    scores: Any


def written(path: Path, values: list[Any]) -> list[Any]:
    """What is read from the file to which these values were written."""
    found = map_output.writer(path, stored=False)(lambda: map(map_call.dump_value, values))
    assert found.value == path
    return parquet.read_table(path).to_pylist()


MANY = map_output.ROWS
NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("values", "rows"),
    {
        "a column that the first row lacks": (
            [FailedItem(0, "no", 3), {"a": 1}, {"a": 2, "b": "x"}],
            [{"a": None, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": "x"}],
        ),
        "fractions after whole numbers": ([1] * MANY + [2.5], [{"value": 1.0}] * MANY + [{"value": 2.5}]),
        "values after none": ([None] * MANY + ["x"], [{"value": None}] * MANY + [{"value": "x"}]),
        "a later key": (
            [{"a": {"x": [1]}}] * MANY + [{"a": {"x": [1.5], "y": True}, "b": 0}],
            [{"a": {"x": [1.0], "y": None}, "b": None}] * MANY + [{"a": {"x": [1.5], "y": True}, "b": 0}],
        ),
        "objects": (
            [Answer("yes", torch.tensor([0.5])), {"text": "no", "scores": [np.float32(1)]}],
            [{"text": "yes", "scores": [0.5]}, {"text": "no", "scores": [1.0]}],
        ),
        "times": ([NOON, None], [{"value": NOON}, {"value": None}]),
        "many": (list(range(25_000)), [{"value": number} for number in range(25_000)]),
        "nothing": ([], []),
    }.values(),
)
def test_values_are_written_as_rows_of_parquet(tmp_path: Path, values: list[Any], rows: list[Any]) -> None:
    """Each is there as it was, whatever those before it were."""
    assert written(tmp_path / "values.parquet", values) == rows


@pytest.mark.parametrize(
    "values",
    [
        [1, "text"],
        [1] * MANY + ["text"],
        [2**53 + 1] * MANY + [0.5],
        [2**70],
        [{1: 0, "1": 0}],
        [NOON.date(), NOON],
        [NOON, NOON.astimezone(timezone.utc)],
        [pandas.Timestamp(NOON) + pandas.Timedelta(1, "ns")],
    ],
)
def test_values_that_parquet_would_change_are_refused(tmp_path: Path, values: list[Any]) -> None:
    with pytest.raises(ConfigurationError, match="can't be rows of a Parquet file"):
        written(tmp_path / "values.parquet", values)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", ["", ", detach=True"])
def test_rows_of_a_data_set_are_mapped_into_another_one(notebook: Notebook, tmp_path: Path, options: str) -> None:
    """Long: kernel and server import `datasets`."""
    notebook.check(MAP + f"os.chdir({str(tmp_path)!r})", timeout=LONG)
    notebook.check(
        f"found = map_on_ranks(shout, data, output='found.parquet', num_processes=2, device='cpu'{options})\n"
        "path = found.result(200) if isinstance(found, Job) else found\n"
        "rows = Dataset.from_parquet(str(path), cache_dir='cache')",
        timeout=LONG,
    )
    assert notebook.value("rows['text'][41], rows['length'][41], len(rows)") == ("TEXT 41", 7, 100)
    assert notebook.value("sorted(rows.column_names)") == ["length", "text"]


def test_a_study_gets_values_and_stops_trials(notebook: Notebook) -> None:
    notebook.check(SWEEP, timeout=LONG)
    assert notebook.value("[(each.params['lr'], each.state.name) for each in study.trials]") == [
        (0.5, "COMPLETE"),
        (0.25, "PRUNED"),
        (1.0, "FAIL"),
    ]
    assert notebook.value("study.best_value, study.best_trial.intermediate_values") == (
        pytest.approx(0.5 / 3),
        {0: 0.5, 1: 0.25, 2: pytest.approx(0.5 / 3)},
    )
    assert notebook.value("runs[1].why") == "ThresholdPruner stopped it at step 0"
    assert notebook.value("runs[2].why").startswith("ValueError: bad")
    assert notebook.value("runs.best('val/loss').number") == 0
