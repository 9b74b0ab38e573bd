"""`report`: sends metrics from a training function to the notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, SupportsFloat

from notebook_accel import rank_local
from notebook_accel.events import as_float
from notebook_accel.events.emit import METRICS_SINK

_LATEST = f"{__name__}.latest"
"""The key in a rank's space of its latest metrics, and of a read-only view of them."""


def report(
    values: Mapping[str, SupportsFloat] | None = None, /, *, step: int | None = None, **named: SupportsFloat
) -> Mapping[str, float]:
    """Reports metrics: `report(loss=0.3, step=step)`.

    On a rank, they appear below the cell, in `job.metrics`, and in the charts that stay there. Outside a launch, the
    call only checks its values and remembers them, so that a function runs the same with and without a launcher.

    Each value is a number, or an array or tensor with one element; reading a tensor on a device waits for that device.
    A loop may report at every step: a report takes a few microseconds, never waits, and none is left out.

    Args:
        values: Metrics whose names are not Python identifiers: `report({"val/loss": 0.3})`.
        step: The training step, by which charts compare ranks. Without it, they count each rank's reports.
        named: Metrics by name.

    Returns:
        The latest value of everything that this process has reported, by name: a view, which later reports change.

    Raises:
        TypeError: A value is not a number, and has not exactly one element; or it has no name.
    """
    try:
        found: dict[str, Any] = named if values is None else {**values, **named}
    except TypeError:
        raise TypeError(
            f"report() takes numbers by name, not {type(values).__name__}: write report(loss=0.3), or "
            'report({"val/loss": 0.3}) for a name that is not an identifier'
        ) from None
    for value in found.values():
        if type(value) is not float:
            found = _to_numbers(found)
            break
    space = rank_local.alone or rank_local.space()
    latest: dict[str, float]
    readable: Mapping[str, float]
    try:
        latest, readable = space[_LATEST]
    except KeyError:
        latest, readable = _initialize(space)
    latest |= found
    sink = space[METRICS_SINK]
    if sink is not None and found:
        sink(found, step if step is None or type(step) is int else int(step))
    return readable


class _View(Mapping[str, float]):
    """Metrics that can only be read, and that look like a dict below a cell."""

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


def _initialize(space: dict[str, Any]) -> tuple[dict[str, float], Mapping[str, float]]:
    """Creates the entries of a rank's space that each report reads."""
    latest: dict[str, float] = {}
    known = space[_LATEST] = latest, _View(latest)
    space.setdefault(METRICS_SINK, None)  # there has been no listener yet
    return known


def _to_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    try:
        return {name: _number(value) for name, value in values.items()}
    except (TypeError, ValueError, RuntimeError):
        raise _type_error(values) from None


def _number(value: Any) -> float:
    """Detaches a tensor first: a loss still has its graph, and torch warns if such a tensor is converted."""
    return as_float(value.detach() if hasattr(value, "detach") else value)


def _type_error(values: Mapping[str, Any]) -> TypeError:
    for name, value in values.items():
        try:
            _number(value)
        except (TypeError, ValueError, RuntimeError) as error:
            return TypeError(
                f"report() takes numbers, and {name!r} is a {type(value).__name__}, not a number ({error}): reduce it "
                "to one number first, for instance with .mean()"
            )
    return TypeError("report() takes numbers")
