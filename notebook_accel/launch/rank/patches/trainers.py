"""Patches training frameworks.

The metrics that they log become events, bars without a description get one, and Lightning starts no ranks on a rank.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Metrics
from notebook_accel.launch.wire.mirrored.on_import import replace, when_imported
from notebook_accel.rank_spans import counted


def install() -> None:
    """Patches each framework once it is imported."""
    lightning = ("lightning.pytorch", "pytorch_lightning")
    fabric = ("lightning.fabric", "lightning_fabric")
    connector = "trainer.connectors.logger_connector.logger_connector"
    launcher = "strategies.launchers.multiprocessing"
    when_imported(
        {
            "transformers.trainer_callback": _patch_transformers,
            **{f"{root}.{connector}": _patch_lightning for root in lightning},
            **{f"{root}.{launcher}": _refuse_to_launch for root in (*lightning, *fabric)},
        }
    )


def _patch_transformers(module: Any) -> None:
    handler = module.CallbackHandler
    replace(handler, "on_log", lambda method: _emit_metrics(method, _trainer_log))
    progress = getattr(module, "ProgressCallback", None)
    if progress is not None:
        replace(progress, "on_train_begin", lambda method: _name_bar(method, "training_bar", "Training"))
        replace(progress, "on_prediction_step", lambda method: _name_bar(method, "prediction_bar", "Evaluation"))


def _patch_lightning(module: Any) -> None:
    connector = module._LoggerConnector
    replace(connector, "log_metrics", lambda method: _emit_metrics(method, _lightning_log))


def _refuse_to_launch(module: Any) -> None:
    """Makes the strategies fail that fork or spawn ranks: those would wait for each other without end."""
    module._MultiProcessingLauncher.launch = _launch


def _launch(self: Any, *args: Any, **kwargs: Any) -> Any:
    del self, args, kwargs
    ranks, here = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = f", num_nodes={ranks // here}" if ranks > here else ""
    raise ConfigurationError(
        "Lightning's strategies 'ddp_notebook', 'ddp_fork', and 'ddp_spawn' start processes of their own, but this "
        f'code runs on {counted(ranks)} already: write strategy="ddp", devices={here}{nodes}'
    )


def _trainer_log(
    handler: Any, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **rest: Any
) -> tuple[Mapping[str, Any], int]:
    return logs, state.global_step


def _lightning_log(
    connector: Any, metrics: Mapping[str, Any], step: int | None = None
) -> tuple[Mapping[str, Any], int]:
    return metrics, connector.trainer.global_step if step is None else step


_Read = Callable[..., tuple[Mapping[str, Any], int]]
"""Takes the arguments of a method that logs, and returns the values and the step."""


def _emit_metrics(method: Callable[..., Any], read: _Read) -> Callable[..., Any]:
    def log(*args: Any, **kwargs: Any) -> Any:
        if events.has_sink():
            with contextlib.suppress(Exception):  # another version of the framework may log in another way
                values, step = read(*args, **kwargs)
                numbers = _numbers(values)
                if numbers:
                    events.emit(Metrics(numbers, int(step)))
        return method(*args, **kwargs)

    return log


def _name_bar(method: Callable[..., Any], bar: str, name: str) -> Callable[..., Any]:
    """Gives the bar that a method makes, and keeps in the attribute `bar`, a description."""

    def make(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        made = getattr(self, bar, None)
        if events.is_drawn() and made is not None and not getattr(made, "desc", name):
            made.set_description_str(name)
        return result

    return make


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    found = {}
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a text, or many numbers
            found[str(name)] = float(value)
    return found
