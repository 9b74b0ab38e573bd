"""Makes events of the bars of Keras: one for each `fit`, `evaluate` or `predict`, and one for each bare `Progbar`.

Keras draws by itself, on standard output. A bar that would draw counts as it does otherwise, and is only told. Keras is
changed when it is imported.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from notebook_accel import events
from notebook_accel.events import Bar, Metrics
from notebook_accel.launch.rank.patches import tqdm
from notebook_accel.launch.rank.patches.on_import import when_imported

_DRAWS = 1
"""The `verbose` of a bar that draws; 2 prints a line at the end of each epoch."""


def install() -> None:
    """Has the bars of this process told, once Keras is there."""
    when_imported({"keras.src.utils.progbar": _change_bar, "keras.src.callbacks.progbar_logger": _change_logger})


@dataclass
class _Shown:
    """One bar of the panel."""

    description: str = ""
    ends_alone: bool = True
    """It is over when it is full; else when `close` says so."""
    number: int = field(default_factory=tqdm.new_number)
    last: Bar | None = None

    def tell(self, bar: Any, n: float, *, is_full: bool) -> None:
        """Tells the state of one of Keras' bars."""
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
            closed=is_full and self.ends_alone,
        )
        tqdm.tell(self.last)

    def close(self) -> None:
        if self.last is not None:
            tqdm.tell(replace(self.last, closed=True))


def _change_bar(module: Any) -> None:
    if not hasattr(module.Progbar.update, "__wrapped__"):
        module.Progbar.update = _update(module.Progbar.update)


def _update(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def update(self: Any, current: Any, values: Any = None, finalize: bool | None = None) -> None:
        if not _is_told(self):
            original(self, current, values, finalize)
            return
        self.verbose = 0  # it counts, and does not draw
        try:
            original(self, current, values, finalize)
        finally:
            self.verbose = _DRAWS
        with contextlib.suppress(Exception):  # another version of Keras may keep other things
            is_full = finalize or (finalize is None and self.target is not None and current >= self.target)
            if not hasattr(self, "_accel_shown"):
                self._accel_shown = _Shown()
            self._accel_shown.tell(self, float(current), is_full=bool(is_full))

    return update


def _change_logger(module: Any) -> None:
    base: Any = module.ProgbarLogger
    if hasattr(base, "_accel_shown"):
        return

    class ProgbarLogger(base):  # type: ignore[misc]
        """What draws during `fit`, `evaluate` and `predict`: however many bars it makes, one is shown."""

        _accel_shown: _Shown | None = None

        def _maybe_init_progbar(self) -> None:
            super()._maybe_init_progbar()
            if self._accel_shown is None:
                self._accel_shown = _Shown("Evaluation", ends_alone=False)
            self.progbar._accel_shown = self._accel_shown

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if not _is_told(self):
                super().on_epoch_begin(epoch, logs)
                return
            self._reset_progbar()  # the rest would print the number of the epoch
            self._maybe_init_progbar()
            self._accel_shown.description = f"Epoch {epoch + 1}/{self.epochs}"  # type: ignore[union-attr]

        def on_predict_begin(self, logs: Any = None) -> None:
            super().on_predict_begin(logs)
            self._accel_shown.description = "Prediction"  # type: ignore[union-attr]

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
            if self._accel_shown is not None:
                self._accel_shown.close()
                self._accel_shown = None

    ProgbarLogger.__module__ = base.__module__
    module.ProgbarLogger = ProgbarLogger


def _is_told(bar: Any) -> bool:
    return events.has_sink() and bar.verbose == _DRAWS


def _mean(value: Any) -> float:
    total, count = value if isinstance(value, list) else (value, 1)
    return float(total) / max(1, count)
