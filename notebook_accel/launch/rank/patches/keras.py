"""Patches the progress bars of Keras: each `fit`, `evaluate`, `predict` and bare `Progbar` becomes one bar of events.

Keras draws its bars itself, on standard output. A bar that would draw keeps its counts and emits events instead.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from notebook_accel import events
from notebook_accel.events import Bar, Metrics
from notebook_accel.launch.rank.patches import tqdm
from notebook_accel.launch.wire.mirrored import on_import

_VERBOSE_BAR = 1
"""The `verbose` of a bar that draws. With 2, Keras prints a line at the end of each epoch."""


def install() -> None:
    """Patches Keras once it is imported."""
    on_import.when_imported(
        {"keras.src.utils.progbar": _patch_progbar, "keras.src.callbacks.progbar_logger": _patch_logger}
    )


@dataclass
class _PanelBar:
    """A bar as the panel shows it."""

    description: str = ""
    closes_when_full: bool = True
    """It closes once it is full; otherwise only when `close` is called."""
    number: int = field(default_factory=tqdm.new_number)
    last: Bar | None = None

    def publish(self, bar: Any, n: float, *, is_full: bool) -> None:
        """Publishes the state of a `Progbar`."""
        elapsed = time.time() - bar._start
        self.last = Bar(
            bar=self.number,
            n=n,
            total=None if bar.target is None else float(bar.target),
            description=self.description,
            unit=str(bar.unit_name),
            rate=n / elapsed if elapsed > 0 else None,
            elapsed=elapsed,
            postfix=", ".join(f"{name}={_mean(bar._values[name]):.4g}" for name in bar._values_order),
            closed=is_full and self.closes_when_full,
        )
        tqdm.publish(self.last)

    def close(self) -> None:
        if self.last is not None:
            tqdm.publish(replace(self.last, closed=True))


def _patch_progbar(module: Any) -> None:
    on_import.replace(module.Progbar, "update", _patched_update)


def _patched_update(original: Callable[..., None]) -> Callable[..., None]:
    def update(self: Any, current: Any, values: Any = None, finalize: bool | None = None) -> None:
        if not _is_captured(self):
            original(self, current, values, finalize)
            return
        self.verbose = 0  # it then counts, and does not draw
        try:
            original(self, current, values, finalize)
        finally:
            self.verbose = _VERBOSE_BAR
        with contextlib.suppress(Exception):  # another version of Keras may have other attributes
            is_full = finalize or (finalize is None and self.target is not None and current >= self.target)
            if not hasattr(self, "_accel_bar"):
                self._accel_bar = _PanelBar()
            self._accel_bar.publish(self, float(current), is_full=bool(is_full))

    return update


def _patch_logger(module: Any) -> None:
    base: Any = module.ProgbarLogger
    if hasattr(base, "_accel_bar"):
        return

    class ProgbarLogger(base):  # type: ignore[misc]
        """The callback that draws during `fit`, `evaluate` and `predict`. It makes a bar an epoch; one is shown."""

        _accel_bar: _PanelBar | None = None

        def _maybe_init_progbar(self) -> None:
            super()._maybe_init_progbar()
            if self._accel_bar is None:
                self._accel_bar = _PanelBar("Evaluation", closes_when_full=False)
            self.progbar._accel_bar = self._accel_bar

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if not _is_captured(self):
                super().on_epoch_begin(epoch, logs)
                return
            self._reset_progbar()  # the original would also print the number of the epoch
            self._maybe_init_progbar()
            self._accel_bar.description = f"Epoch {epoch + 1}/{self.epochs}"  # type: ignore[union-attr]

        def on_predict_begin(self, logs: Any = None) -> None:
            super().on_predict_begin(logs)
            self._accel_bar.description = "Prediction"  # type: ignore[union-attr]

        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            super().on_epoch_end(epoch, logs)
            if events.has_sink():
                with contextlib.suppress(Exception):
                    values = {name: float(value) for name, value in (logs or {}).items()}
                    events.emit(Metrics(values, (epoch + 1) * int(self.target)))

        def on_train_end(self, logs: Any = None) -> None:
            super().on_train_end(logs)
            self._accel_close()

        def on_test_end(self, logs: Any = None) -> None:
            super().on_test_end(logs)
            if not self._called_in_fit:
                self._accel_close()

        def on_predict_end(self, logs: Any = None) -> None:
            super().on_predict_end(logs)
            self._accel_close()

        def _accel_close(self) -> None:
            if self._accel_bar is not None:
                self._accel_bar.close()
                self._accel_bar = None

    ProgbarLogger.__module__ = base.__module__
    module.ProgbarLogger = ProgbarLogger


def _is_captured(bar: Any) -> bool:
    return events.is_drawn() and bar.verbose == _VERBOSE_BAR


def _mean(value: Any) -> float:
    total, count = value if isinstance(value, list) else (value, 1)
    return float(total) / max(1, count)
