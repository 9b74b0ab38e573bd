"""The tunable values of an Accelerator: made known to the panel, and saved with checkpoints."""

from __future__ import annotations

from typing import Any

from notebook_accel import events
from notebook_accel.train.steps.tunable import Tunable


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
