"""Modules that are changed when they are imported."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from notebook_accel import events
from notebook_accel.events import Event, Metrics
from notebook_accel.launch.rank.patches import jax, tqdm, trainers
from notebook_accel.launch.rank.patches import keras as keras_bars
from notebook_accel.launch.wire.mirrored.on_import import when_imported


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to import from; what is imported there is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def imported(name: str, **content: Any) -> ModuleType:
    """A module of another library, as if it had been imported."""
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(content)
    return module


def test_a_module_is_changed_when_it_is_imported(imports: Path) -> None:
    (imports / "parent").mkdir()
    (imports / "parent" / "__init__.py").touch()
    (imports / "parent" / "child.py").write_text("value = 1")
    when_imported({"parent.child": lambda module: setattr(module, "value", module.value + 1)})
    assert "parent" not in sys.modules
    assert importlib.import_module("parent.child").value == 2


def test_a_module_that_is_there_is_changed_at_once(imports: Path) -> None:
    (imports / "early.py").write_text("value = 1")
    module = importlib.import_module("early")
    when_imported({"early": lambda module: setattr(module, "value", 5)})
    assert module.value == 5


def test_a_module_that_is_not_installed_stays_an_import_error(imports: Path) -> None:
    when_imported({"no_such_module_here": lambda module: None})
    with pytest.raises(ModuleNotFoundError, match="no_such_module_here"):
        importlib.import_module("no_such_module_here")


@pytest.fixture
def heard() -> Any:
    found: list[Event] = []
    events.set_sink(found.append)
    yield found
    events.set_sink(None)


def test_what_the_trainer_logs_is_told(imports: Path, heard: list[Event]) -> None:
    (imports / "transformers").mkdir()
    (imports / "transformers" / "__init__.py").touch()
    (imports / "transformers" / "trainer_callback.py").write_text(
        "class CallbackHandler:\n    def on_log(self, args, state, control, logs, **kwargs):\n        return logs\n"
    )
    sys.modules.pop("transformers", None)
    trainers.install()
    handler = importlib.import_module("transformers.trainer_callback").CallbackHandler()
    logs = {"loss": 0.5, "note": "text", "many": [1, 2]}
    assert handler.on_log(None, SimpleNamespace(global_step=7), None, logs) is logs
    (event,) = heard
    assert isinstance(event, Metrics)
    assert (event.values, event.step) == ({"loss": 0.5}, 7)
    assert handler.on_log(None, None, None, logs) is logs  # another version may hand over something else


@pytest.mark.parametrize(("step", "expected"), [(None, 9), (3, 3)])
def test_what_lightning_logs_is_told(imports: Path, heard: list[Event], step: int | None, expected: int) -> None:
    class Connector:
        trainer = SimpleNamespace(global_step=9)
        logged: list[Any] = []  # noqa: RUF012

        def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
            self.logged.append(metrics)

    imported("lightning.pytorch.trainer.connectors.logger_connector.logger_connector", _LoggerConnector=Connector)
    for _ in range(2):  # for the second time without effect
        trainers.install()
    Connector().log_metrics({"loss": 1}, step=step)
    assert Connector.logged == [{"loss": 1}]
    (event,) = heard
    assert isinstance(event, Metrics)
    assert (event.values, event.step) == ({"loss": 1.0}, expected)


def test_a_bar_that_the_trainer_leaves_without_a_name_gets_one(imports: Path, heard: list[Event]) -> None:
    class Bar:
        def __init__(self, desc: str) -> None:
            self.desc = desc

        def set_description_str(self, desc: str) -> None:
            self.desc = desc

    class Progress:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_train_begin(self) -> None:
            self.training_bar = Bar(self.name)

        def on_prediction_step(self) -> None:
            self.prediction_bar = None

    handler = type("CallbackHandler", (), {"on_log": lambda *_, **__: None})
    imported("transformers.trainer_callback", CallbackHandler=handler, ProgressCallback=Progress)
    trainers.install()
    for name, expected in (("", "Training"), ("mine", "mine")):
        progress = Progress(name)
        progress.on_train_begin()
        progress.on_prediction_step()
        assert progress.training_bar.desc == expected


CLUSTER = """
class ClusterEnv:
    _cluster_types = []

    def __init_subclass__(cls):
        cls._cluster_types.append(cls)

class Slurm(ClusterEnv):
    name = "slurm"
"""


def test_jax_knows_the_launch_before_all_other_surroundings(imports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = imports / "jax" / "_src" / "clusters"
    folder.mkdir(parents=True)
    (folder / "cluster.py").write_text(CLUSTER)
    for name in [name for name in sys.modules if name.partition(".")[0] == "jax"]:
        del sys.modules[name]
    jax.install()
    cluster = importlib.import_module("jax._src.clusters.cluster")
    jax.install()  # for the second time without effect
    launch, slurm = cluster.ClusterEnv._cluster_types
    assert slurm.name == "slurm"
    monkeypatch.delenv("JAX_COORDINATOR_PORT", raising=False)
    assert not launch.is_env_present()
    for name, value in {
        "JAX_COORDINATOR_PORT": "4321", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "4", "CUDA_VISIBLE_DEVICES": "", "JAX_COORDINATOR_BIND_ADDRESS": "",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS")
    assert launch.is_env_present()
    assert launch.get_coordinator_address(timeout_secs=1, override_coordinator_port="4321") == "127.0.0.1:4321"
    assert os.environ["JAX_COORDINATOR_BIND_ADDRESS"] == "127.0.0.1:4321"
    assert (launch.get_process_count(), launch.get_process_id(), launch.get_local_process_id()) == (4, 3, 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")  # the ranks share two
    assert launch.get_local_process_id() == 1


class Progbar:
    """As Keras has it, as far as it matters."""

    def __init__(self, target: int | None, verbose: int = 1) -> None:
        self.target, self.verbose, self.unit_name, self._start = target, verbose, "step", 0.0
        self._values: dict[str, Any] = {}
        self._values_order: list[str] = []
        self.drawn = 0

    def update(self, current: int, values: Any = None, finalize: bool | None = None) -> None:
        for name, value in values or ():
            self._values_order = [*dict.fromkeys([*self._values_order, name])]
            self._values[name] = [value, 1]
        self.drawn += self.verbose == 1


class ProgbarLogger:
    """As Keras has it, as far as it matters."""

    def __init__(self, verbose: int = 1) -> None:
        self.verbose, self.epochs, self.target, self.progbar = verbose, 2, 3, None
        self._called_in_fit = False
        self.printed: list[int] = []

    def _reset_progbar(self) -> None:
        self.progbar = None

    def _maybe_init_progbar(self) -> None:
        self.progbar = self.progbar or Progbar(self.target, self.verbose)  # type: ignore[assignment]

    def on_train_begin(self, logs: Any = None) -> None:
        self._called_in_fit = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._reset_progbar()
        self._maybe_init_progbar()
        self.printed.append(epoch)

    def on_test_begin(self, logs: Any = None) -> None:
        self._maybe_init_progbar()

    on_predict_begin = on_test_begin

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.progbar.update(self.target, list((logs or {}).items()), finalize=True)  # type: ignore[attr-defined]

    on_test_end = on_predict_end = on_train_end = lambda self, logs=None: None


@pytest.fixture
def keras(imports: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    tqdm.take()  # what others have left
    monkeypatch.setattr(Progbar, "update", Progbar.update)
    imported("keras.src.utils.progbar", Progbar=Progbar)
    logger = imported("keras.src.callbacks.progbar_logger", ProgbarLogger=ProgbarLogger)
    keras_bars.install()
    patched = Progbar.update, logger.ProgbarLogger
    keras_bars.install()
    assert patched == (Progbar.update, logger.ProgbarLogger), "patched twice"
    return SimpleNamespace(Progbar=Progbar, ProgbarLogger=logger.ProgbarLogger)


def test_the_epochs_of_keras_are_one_bar(keras: Any, heard: list[Event]) -> None:
    logger = keras.ProgbarLogger()
    logger.on_train_begin()
    told = []
    for epoch in range(2):
        logger.on_epoch_begin(epoch)
        logger.progbar.update(2, [("loss", 0.25)], finalize=False)
        told += tqdm.take()
        logger.on_epoch_end(epoch, {"loss": 0.5})
        told += tqdm.take()
    logger.on_train_end()
    told += tqdm.take()
    assert len({bar.bar for bar in told}) == 1
    assert [(bar.description, bar.n, bar.total, bar.postfix, bar.closed) for bar in told] == [
        ("Epoch 1/2", 2, 3, "loss=0.25", False),
        ("Epoch 1/2", 3, 3, "loss=0.5", False),
        ("Epoch 2/2", 2, 3, "loss=0.25", False),
        ("Epoch 2/2", 3, 3, "loss=0.5", False),
        ("Epoch 2/2", 3, 3, "loss=0.5", True),
    ]
    assert [(event.values, event.step) for event in heard if isinstance(event, Metrics)] == [
        ({"loss": 0.5}, 3),
        ({"loss": 0.5}, 6),
    ]
    assert (logger.printed, logger.progbar.drawn, logger.progbar.verbose) == ([], 0, 1)


def test_other_bars_of_keras_have_their_names(keras: Any, heard: list[Event]) -> None:
    evaluation, prediction, bare = keras.ProgbarLogger(), keras.ProgbarLogger(), keras.Progbar(2)
    evaluation.on_test_begin()
    prediction.on_predict_begin()
    for bar in (evaluation.progbar, prediction.progbar, bare):
        bar.update(2)
    evaluation.on_test_end()
    prediction.on_predict_end()
    assert sorted((bar.description, bar.n, bar.closed) for bar in tqdm.take()) == [
        ("", 2, True),
        ("Evaluation", 2, True),
        ("Prediction", 2, True),
    ]


def test_keras_draws_as_ever_where_nobody_listens_or_lines_were_asked_for(keras: Any) -> None:
    logger = keras.ProgbarLogger()
    logger.on_epoch_begin(0)
    logger.on_epoch_end(0)
    assert (logger.printed, logger.progbar.drawn) == ([0], 1)
    events.set_sink(lambda event: None)
    try:
        quiet = keras.ProgbarLogger(verbose=2)
        quiet.on_epoch_begin(0)
        quiet.on_epoch_end(0)
        assert quiet.printed == [0]
    finally:
        events.set_sink(None)
    assert tqdm.take() == []
