"""Numbers that can be changed while the training runs, after the same step on all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from notebook_accel import events
from notebook_accel.errors import ConfigurationError
from notebook_accel.events import TunableChanged, as_float


class Tunables:
    """The values by name; an object that checkpoints save."""

    def __init__(self) -> None:
        self._by_name: dict[str, Tunable] = {}
        self._saved: dict[str, Any] = {}
        """States of a checkpoint for values that are not known yet."""

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def add(self, tunable: Tunable) -> Tunable:
        """Makes a value known, or another with the same name in its place; it has the value of a loaded checkpoint."""
        self._by_name[tunable.name] = tunable
        if tunable.name in self._saved:
            tunable.load_state_dict(self._saved.pop(tunable.name))
        _publish(tunable)
        return tunable

    def state_dict(self) -> dict[str, Any]:
        """The state of each."""
        return {name: tunable.state_dict() for name, tunable in self._by_name.items()}

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """Sets the values of a checkpoint. One that is made later has its value from the start."""
        self._saved = dict(states)
        for name, tunable in self._by_name.items():
            if name in self._saved:
                tunable.load_state_dict(self._saved.pop(name))
                _publish(tunable)


def _publish(tunable: Tunable) -> None:
    control = events.step_control()
    if control is not None:
        control.add(tunable)


class Tunable:
    """A number that the panel's field and `job.tune` change; see `Accelerator.tunable`.

    Args:
        name: What it is called in the panel and in `job.tune`.
        value: What it is at first. An integer stays one.
        low: The least value; `None`: any.
        high: The greatest value; `None`: any.
        on_change: Called with each new value.
    """

    def __init__(
        self, name: str, value: float, low: float | None, high: float | None, on_change: Callable[[Any], object] | None
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigurationError(
                f"a tunable value can't be called {name!r}: use a Python name, since job.tune(name=...) takes it"
            )
        if name == "timeout":
            raise ConfigurationError("a tunable value can't be called 'timeout', which is an argument of job.tune")
        self.name = name
        self._is_whole = isinstance(value, int)
        self._low, self._high = low, high
        self._on_change = on_change
        self._value = value
        given = (("value", value), ("low", low), ("high", high))
        for what, each in given:
            is_number = isinstance(each, (int, float)) and not isinstance(each, bool)
            if not (each is None and what != "value") and not (is_number and math.isfinite(as_float(each or 0))):
                raise ConfigurationError(f"{what}={each!r} of the tunable {name} is not a finite number")
        if refusal := self.refusal(value):
            raise ConfigurationError(refusal)

    @property
    def value(self) -> Any:
        """The value now, an `int` or a `float` as at first."""
        return self._value

    def __float__(self) -> float:
        return float(self._value)

    def __repr__(self) -> str:
        return f"<tunable {self.name} = {self._value:g}>"

    # For the checkpoint

    def state_dict(self) -> dict[str, Any]:
        """Its value."""
        return {"value": self._value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Sets the value of a checkpoint, unless the range of values has changed and does not contain it."""
        if not self.refusal(state["value"]) and state["value"] != self._value:
            self.set(state["value"])

    # For the controls

    @property
    def state(self) -> TunableChanged:
        """As the panel shows it."""
        return TunableChanged(self.name, self._value, self._low, self._high, self._is_whole)

    def refusal(self, value: float) -> str:
        """Why it can't have this value; empty if it can."""
        if self._is_whole and value != int(value):
            return f"{self.name}={value:g} is not an integer, unlike its first value"
        if self._low is not None and value < self._low:
            return f"{self.name} must be at least {self._low:g}, not {value:g}"
        if self._high is not None and value > self._high:
            return f"{self.name} must be at most {self._high:g}, not {value:g}"
        return ""

    def set(self, value: float) -> None:
        """Changes it, and calls the user's function."""
        self.restore(value)
        if self._on_change is not None:
            self._on_change(self._value)

    def restore(self, value: float) -> None:
        """Changes it without a call of the user's function."""
        self._value = int(value) if self._is_whole else float(value)
