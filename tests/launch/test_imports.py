"""Modules that are changed when they are imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from notebook_accel import events
from notebook_accel.events import Event, Metrics
from notebook_accel.launch import frameworks
from notebook_accel.launch.imports import when_imported


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to import from; what is imported there is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


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
    events.listen(found.append)
    yield found
    events.listen(None)


def test_what_the_trainer_logs_is_told(imports: Path, heard: list[Event]) -> None:
    (imports / "transformers").mkdir()
    (imports / "transformers" / "__init__.py").touch()
    (imports / "transformers" / "trainer_callback.py").write_text(
        "class CallbackHandler:\n    def on_log(self, args, state, control, logs, **kwargs):\n        return logs\n"
    )
    sys.modules.pop("transformers", None)
    frameworks.install()
    handler = importlib.import_module("transformers.trainer_callback").CallbackHandler()
    logs = {"loss": 0.5, "note": "text", "many": [1, 2]}
    assert handler.on_log(None, SimpleNamespace(global_step=7), None, logs) is logs
    (event,) = heard
    assert isinstance(event, Metrics)
    assert (event.values, event.step) == ({"loss": 0.5}, 7)
    assert handler.on_log(None, None, None, logs) is logs  # another version may hand over something else


@pytest.mark.parametrize(("step", "expected"), [(None, 9), (3, 3)])
def test_what_lightning_logs_is_told(heard: list[Event], step: int | None, expected: int) -> None:
    class Connector:
        trainer = SimpleNamespace(global_step=9)
        logged: list[Any] = []  # noqa: RUF012

        def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
            self.logged.append(metrics)

    module = SimpleNamespace(_LoggerConnector=Connector)
    for _ in range(2):  # for the second time without effect
        frameworks._change_lightning(module)
    Connector().log_metrics({"loss": 1}, step=step)
    assert Connector.logged == [{"loss": 1}]
    (event,) = heard
    assert isinstance(event, Metrics)
    assert (event.values, event.step) == ({"loss": 1.0}, expected)
