"""Trackers: one contract, each service through its own package.

Services whose package is not here are stood in for by recorders of the calls that the real ones were found to take.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.train.options.enums import LoggerType
from notebook_accel.train.trackers.active_trackers import (
    TRACKERS,
    TrackerGroup,
    filter_trackers,
    get_available_trackers,
    register_tracker_class,
)
from notebook_accel.train.trackers.base import GeneralTracker, on_main_process, scalars

Calls = list[tuple[Any, ...]]


class Recorder:
    """Remembers what is called on it."""

    def __init__(self, calls: Calls, prefix: str = "") -> None:
        self._calls = calls
        self._prefix = prefix

    def __getattr__(self, name: str) -> Recorder:
        if name.startswith("__"):
            raise AttributeError(name)
        return Recorder(self._calls, f"{self._prefix}{name}.")

    def __setitem__(self, name: str, value: Any) -> None:
        self._calls.append((f"{self._prefix}{name}", value))

    def __call__(self, *args: Any, **kwargs: Any) -> Recorder:
        name = self._prefix.removesuffix(".")
        self._calls.append((name, *args, kwargs) if kwargs else (name, *args))
        return Recorder(self._calls, "run.")


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Calls]:
    """Puts a recorder in the place of a package."""

    def put(package: str) -> Calls:
        calls: Calls = []
        module = types.ModuleType(package)
        module.__spec__ = importlib.machinery.ModuleSpec(package, None)
        module.__getattr__ = Recorder(calls).__getattr__  # type: ignore[method-assign]
        monkeypatch.setitem(sys.modules, package, module)
        return calls

    return put


class Mine(GeneralTracker):
    """As users write them for Accelerate."""

    name = "mine"
    requires_logging_directory = False

    @on_main_process
    def __init__(self, run: str) -> None:
        super().__init__()
        self.calls: Calls = [("init", run)]

    @property
    def tracker(self) -> Calls:
        return self.calls

    @on_main_process
    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.calls.append(("config", values))

    @on_main_process
    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.calls.append(("log", values, step, kwargs))


def test_tensorboard_writes_what_tensorboard_reads(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    group = TrackerGroup("tensorboard", tmp_path)
    group.start("run", {"lr": 0.1, "layers": [1, 2], "name": "small"}, {"tensorboard": {"flush_secs": 1}})
    for step in range(3):
        group.log({"loss": torch.tensor(1.0 / (step + 1)), "n": step, "acc": np.float32(0.5)}, step=step)
    group.log({"note": "text", "both": {"train": 1.0, "test": torch.tensor(2.0)}}, step=3)
    group.get("tensorboard").log_images({"images": np.zeros((2, 4, 4, 3))}, step=3, dataformats="NHWC")
    group.get("tensorboard", unwrap=True).add_scalar("own", 7, 1)
    group.finish()
    found = EventAccumulator(str(tmp_path / "run")).Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [
        (0, 1.0),
        (1, 0.5),
        (2, pytest.approx(1 / 3)),
    ]
    assert [event.value for event in found.Scalars("acc")] == [0.5] * 3
    assert found.Scalars("own")[0].value == 7
    assert {"n", "acc", "own"} <= set(found.Tags()["scalars"])
    assert found.Tags()["images"] == ["images"]
    assert "note/text_summary" in found.Tags()["tensors"]
    assert (tmp_path / "run" / "both_test").is_dir()
    assert json.loads((tmp_path / "run" / "hparams.yml").read_text()) == {
        "lr": 0.1,
        "layers": "[1, 2]",
        "name": "small",
    }


def test_a_number_beyond_all_floats_is_infinity() -> None:
    assert scalars({"best": 10**400, "worst": torch.tensor(1), "text": "x"}) == {"best": math.inf, "worst": 1.0}


def test_a_value_that_cannot_be_logged_warns_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    group = TrackerGroup("tensorboard", tmp_path)
    group.start("run")
    for step in range(3):
        group.log({"weights": torch.ones(3), "loss": 1.0}, step=step)
    group.finish()
    assert len(caplog.messages) == 1
    assert "TensorBoardTracker cannot log 'weights', a Tensor: it takes numbers, texts, and dicts" in caplog.messages[0]
    assert "log it through get_tracker('tensorboard', unwrap=True)" in caplog.messages[0]


RECORDED: dict[str, tuple[dict[str, Any], Calls]] = {
    "wandb": (
        {"mode": "offline"},
        [
            ("init", {"project": "project", "mode": "offline"}),
            ("run.config.update", {"lr": 0.1}, {"allow_val_change": True}),
            ("run.log", {"loss": 0.5, "note": "text"}, {"step": 1, "extra": True}),
            ("run.finish",),
        ],
    ),
    "trackio": (
        {"name": "first"},
        [
            ("init", {"project": "project", "name": "first"}),
            ("run.config.update", {"lr": 0.1}),
            ("run.log", {"loss": 0.5, "note": "text"}, {"step": 1, "extra": True}),
            ("run.finish",),
        ],
    ),
    "comet_ml": (
        {"online": False},
        [
            ("start", {"project_name": "project", "online": False}),
            ("run.log_parameters", {"lr": 0.1}),
            ("run.set_step", 1),
            ("run.log_metric", "loss", 0.5, {"step": 1, "extra": True}),
            ("run.log_other", "note", "text", {"extra": True}),
            ("run.end",),
        ],
    ),
    "swanlab": (
        {"mode": "offline"},
        [
            ("init", {"project": "project", "mode": "offline"}),
            ("run.config.update", {"lr": 0.1}),
            ("run.log", {"loss": 0.5, "note": "text"}, {"step": 1, "extra": True}),
            ("run.finish",),
        ],
    ),
    "aim": (
        {"experiment": "first"},
        [
            ("Run", {"repo": "runs", "experiment": "first"}),
            ("run.hparams", {"lr": 0.1}),
            ("run.track", 0.5, {"name": "loss", "step": 1, "extra": True}),
            ("run.track", "text", {"name": "note", "step": 1, "extra": True}),
            ("run.close",),
        ],
    ),
    "dvclive": (
        {"dir": "runs"},
        [
            ("Live", {"dir": "runs"}),
            ("run.log_params", {"lr": 0.1}),
            ("run.log_metric", "loss", 0.5, {"extra": True}),
            ("run.log_metric", "note", "text", {"extra": True}),
            ("run.next_step",),
            ("run.end",),
        ],
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_service_is_called_with_its_own_arguments(name: str, record: Callable[[str], Calls]) -> None:
    given, expected = RECORDED[name]
    calls = record(name)
    group = TrackerGroup(name, "runs")
    group.start("project", {"lr": 0.1}, {name: given})
    group.log({"loss": 0.5, "note": "text"}, step=1, log_kwargs={name: {"extra": True}})
    group.finish()
    assert calls == expected


@pytest.mark.parametrize("is_open", [True, False])
def test_clearml_logs_to_the_task_of_the_users_code_or_to_its_own(
    is_open: bool, record: Callable[[str], Calls], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record("clearml")
    monkeypatch.setenv("CLEARML_TASK", "named")
    task = Recorder(calls, "run.")
    found = types.SimpleNamespace(current_task=lambda: task if is_open else None, init=Recorder(calls, "init."))
    monkeypatch.setattr(sys.modules["clearml"], "Task", found, raising=False)
    group = TrackerGroup("clearml")
    group.start("project", {"lr": 0.1}, {"clearml": {"tags": ["a"]}})
    group.log({"train_loss": 0.5, "accuracy": torch.tensor(0.25)}, step=1)
    group.log({"best": 3})
    group.get("clearml").log_table("eval_answers", ["a"], [[1]], step=2)
    group.finish()
    opened = ("init", {"project_name": "project", "task_name": "named", "tags": ["a"]})
    place = {"title": "loss", "series": "train"}
    assert calls == [
        *([] if is_open else [opened]),
        ("run.connect_configuration", {"lr": 0.1}),
        ("run.get_logger",),
        ("run.report_scalar", {**place, "value": 0.5, "iteration": 1}),
        ("run.report_scalar", {"title": "accuracy", "series": "train", "value": 0.25, "iteration": 1}),
        ("run.get_logger",),
        ("run.report_single_value", {"name": "best", "value": 3}),
        ("run.get_logger",),
        ("run.report_table", {"title": "answers", "series": "eval", "table_plot": [["a"], [1]], "iteration": 2}),
        *([] if is_open else [("run.close",)]),
    ]


def test_mlflow_makes_the_experiment_once_and_logs_numbers(
    record: Callable[[str], Calls], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TAGS", '{"team": "a"}')
    monkeypatch.setenv("MLFLOW_NESTED_RUN", "true")
    calls = record("mlflow")
    validation = types.ModuleType("mlflow.utils.validation")
    validation.MAX_PARAM_VAL_LENGTH = 10  # type: ignore[attr-defined]
    for module in (types.ModuleType("mlflow.utils"), validation):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sys.modules["mlflow"].get_experiment_by_name = lambda name: None  # type: ignore[attr-defined]
    sys.modules["mlflow"].create_experiment = lambda name, **kwargs: calls.append((name, kwargs)) or "7"  # type: ignore[attr-defined]
    group = TrackerGroup("mlflow")
    group.start(
        "project", {"lr": 0.1, "text": "x" * 11, **{f"p{n}": n for n in range(120)}}, {"mlflow": {"run_name": "a"}}
    )
    group.log({"loss": torch.tensor(0.5), "note": "text"}, step=1)
    group.finish()
    assert calls[0] == ("project", {"artifact_location": None, "tags": {"team": "a"}})
    assert calls[1][0] == "start_run"
    assert calls[1][1] == {
        "run_id": None,
        "experiment_id": "7",
        "run_name": "a",
        "nested": True,
        "tags": {"team": "a"},
        "description": None,
    }
    assert [(call[0], len(call[1])) for call in calls[2:4]] == [("log_params", 100), ("log_params", 21)]
    assert calls[4:] == [("log_metrics", {"loss": 0.5}, {"step": 1}), ("end_run",)]
    assert ["'text'" in record.message or "'note'" in record.message for record in caplog.records] == [True, True]


def test_images_and_tables_go_to_wandb_as_its_own(record: Callable[[str], Calls]) -> None:
    calls = record("wandb")
    group = TrackerGroup("wandb")
    group.start("project")
    tracker = group.get("wandb")
    tracker.log_images({"samples": ["a", "b"]}, step=2, caption="x")
    tracker.log_table("table", columns=["a"], data=[[1]], step=3)
    assert [call[0] for call in calls] == ["init", "Image", "Image", "run.log", "Table", "run.log"]
    assert calls[1] == ("Image", "a", {"caption": "x"})
    assert calls[4] == ("Table", {"columns": ["a"], "data": [[1]], "dataframe": None})


def test_a_tracker_of_the_users_own_is_used_like_the_others(tmp_path: Path) -> None:
    mine = Mine("run")
    group = TrackerGroup([mine, "tensorboard"], tmp_path)
    group.start("project", {"lr": 0.1})
    tensor = torch.ones(3)
    group.log({"any": tensor}, step=4, log_kwargs={"mine": {"extra": 1}})
    assert mine.calls == [("init", "run"), ("config", {"lr": 0.1}), ("log", {"any": tensor}, 4, {"extra": 1})]
    assert group.get("mine") is mine
    assert group.get("mine", unwrap=True) is mine.calls
    assert [tracker.name for tracker in group.trackers] == ["mine", "tensorboard"]
    group.finish()
    assert group.trackers == []


def test_on_other_ranks_nothing_is_opened_and_every_call_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    mine = Mine("run")
    group = TrackerGroup([mine, "tensorboard"], tmp_path)
    group.start("project", {"lr": 0.1})
    group.log({"loss": 1.0})
    assert group.trackers == []
    assert not hasattr(mine, "calls")
    group.get("tensorboard", unwrap=True).add_scalar("loss", 1)
    group.get("mine").log({"loss": 1})
    group.finish()
    assert list(tmp_path.iterdir()) == []


def test_starting_again_closes_what_was_open(record: Callable[[str], Calls]) -> None:
    calls = record("wandb")
    group = TrackerGroup("wandb")
    group.start("first")
    group.start("second")
    assert [call[0] for call in calls] == ["init", "run.finish", "init"]
    assert len(group.trackers) == 1


def test_logging_without_a_started_tracker_warns_once(
    record: Callable[[str], Calls], caplog: pytest.LogCaptureFixture
) -> None:
    record("wandb")
    group = TrackerGroup("wandb")
    group.log({"loss": 1.0})
    group.log({"loss": 1.0})
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["wandb received no values"]
    TrackerGroup().log({"loss": 1.0})  # nobody was to get it
    assert len(caplog.records) == 1


def test_numbers_also_go_to_whoever_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[events.Metrics] = []
    monkeypatch.setattr(events, "has_sink", lambda: True, raising=False)
    monkeypatch.setattr(events, "emit", received.append, raising=False)
    group = TrackerGroup()
    group.log(
        {"loss": torch.tensor(0.5), "acc": np.float64(0.25), "n": 3, "text": "no", "image": torch.ones(2, 2)}, step=7
    )
    group.log({"text": "only"})
    assert [(event.values, event.step) for event in received] == [({"loss": 0.5, "acc": 0.25, "n": 3.0}, 7)]


def test_all_means_those_that_are_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("wandb", "trackio", "comet_ml", "mlflow", "aim", "clearml", "dvclive", "swanlab"):
        monkeypatch.setitem(sys.modules, package, None)
    assert [str(each) for each in TrackerGroup("all", tmp_path).log_with] == ["tensorboard"]


class Nameless(GeneralTracker):
    requires_logging_directory = False


class Late(GeneralTracker):
    """Has all that is asked for, and says so without the base's __init__."""

    name = "late"
    requires_logging_directory = True

    def __init__(self) -> None:
        self.tracker = None


def closed(folder: Path) -> TrackerGroup:
    group = TrackerGroup("tensorboard", folder)
    group.start("run")
    group.finish()
    return group


REFUSED = {
    "an unknown name": (
        lambda f: TrackerGroup("tensorbord", f),
        "'tensorbord' is not a tracker: choose from tensorboard, wandb",
    ),
    "a package that is missing": (lambda f: TrackerGroup("wandb", f), "pip install wandb"),
    "no folder for files": (lambda f: TrackerGroup("tensorboard"), "'tensorboard' writes files, but has no folder"),
    "a class": (lambda f: TrackerGroup(Mine), "log_with=Mine is a class"),
    "arguments for none": (
        lambda f: TrackerGroup("tensorboard", f).start("run", None, {"wandb": {}}),
        "init_kwargs is for 'wandb', but log_with chose tensorboard",
    ),
    "a tracker that is not started": (
        lambda f: TrackerGroup("tensorboard", f).get("tensorboard"),
        "call init_trackers first",
    ),
    "a tracker that was closed": (
        lambda f: closed(f).get("tensorboard"),
        "end_training has closed the tracker 'tensorboard': call get_tracker before end_training, or init_trackers",
    ),
    "a tracker that is not there": (
        lambda f: TrackerGroup("tensorboard", f).get("wandb"),
        "there is no tracker 'wandb'; log_with chose tensorboard",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    attempt, message = REFUSED[name]
    with pytest.raises(ConfigurationError, match=message):
        attempt(tmp_path)


def test_a_tracker_that_lacks_a_part_is_refused() -> None:
    with pytest.raises(
        NotImplementedError, match="Nameless is not a complete tracker: it does not define name, tracker"
    ):
        Nameless()


def test_without_trackers_there_is_one_that_does_nothing() -> None:
    tracker = TrackerGroup().get("wandb")
    assert isinstance(tracker, GeneralTracker)
    tracker.log({"loss": 1.0}, step=1)
    tracker.tracker.summary.update()


class Registered(GeneralTracker):
    name = "registered"
    requires_logging_directory = True

    def __init__(self, project: str, folder: Path, **kwargs: Any) -> None:
        self.tracker = (project, folder, kwargs)
        super().__init__()


def test_a_tracker_that_was_made_already_needs_no_folder_of_the_project() -> None:
    late = Late()
    assert filter_trackers(late) == [late]


def test_each_tracker_of_the_table_has_a_name_a_test_a_public_class_and_a_place_in_the_documentation() -> None:
    assert {*TRACKERS, LoggerType.ALL} == set(LoggerType)
    assert {kind.value for kind in TRACKERS} == {"tensorboard", "mlflow", "clearml", *RECORDED}
    public = importlib.import_module("notebook_accel.tracking")
    assert [row.name for row in TRACKERS.values() if not hasattr(public, row.name)] == []
    page = (Path(__file__).parents[2] / "docs" / "resuming.md").read_text()
    assert [kind.value for kind in TRACKERS if f"`{kind.value}`" not in page] == []


def test_a_class_of_the_users_own_is_chosen_by_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    register_tracker_class(Registered)
    register_tracker_class(Registered)
    assert not caplog.records
    assert "registered" in get_available_trackers()
    assert filter_trackers(["registered"], tmp_path) == ["registered"]
    group = TrackerGroup("registered", tmp_path)
    group.start("project", init_kwargs={"registered": {"color": "red"}})
    assert group.get("registered", unwrap=True) == ("project", tmp_path, {"color": "red"})
    with pytest.raises(ConfigurationError, match="log_with='registered' writes files, but has no folder"):
        filter_trackers(["registered"])


def test_a_class_that_replaces_another_is_named(caplog: pytest.LogCaptureFixture) -> None:
    register_tracker_class(Registered)
    register_tracker_class(type("Other", (Registered,), {}))
    assert caplog.messages == ["Other replaces the tracker 'registered'."]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (int, "is not a subclass of GeneralTracker"),
        (type("Nameless", (GeneralTracker,), {"requires_logging_directory": False}), "must define name in the class"),
        (type("Empty", (Registered,), {"name": ""}), "a name that is not empty"),
    ],
)
def test_what_cannot_be_registered_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        register_tracker_class(given)
