"""`report`: numbers that a training function wants to be seen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, SupportsFloat

from notebook_accel import rank_local
from notebook_accel.events import emit_metrics

_LATEST = f"{__name__}.latest"


def report(
    values: Mapping[str, SupportsFloat] | None = None, /, *, step: int | None = None, **named: SupportsFloat
) -> Mapping[str, float]:
    """Reports metrics: `report(loss=0.3, step=step)`.

    In a rank they appear below the cell, in `job.metrics` and in the charts that stay there. Outside of a launch there
    is nobody to show them to, and the call does the rest of what it does: it checks its values and remembers them, so
    that a function runs alike with and without a launcher.

    The values are numbers, or arrays and tensors of one element; one on a device is waited for. A loop may report as
    often as it likes: of more than 80 reports a second some are left out, never the latest value of a name.

    Args:
        values: The metrics by name, where a name is no Python identifier: `report({"val/loss": 0.3})`.
        step: Where in the training this is; what charts show from left to right. By default they show the time.
        named: The metrics.

    Returns:
        The latest value of everything that this process has reported, by name. It goes on changing.

    Raises:
        TypeError: A value is not one number.
    """
    found: dict[str, Any] = {**values, **named} if values else named
    try:
        for name, value in found.items():
            if type(value) is not float:
                # A loss still has its graph, and torch warns about turning such a tensor into a number.
                found[name] = float(value.detach() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError):
        raise _refusal(found) from None
    latest = rank_local.space().setdefault(_LATEST, {})
    latest.update(found)
    if found:
        emit_metrics(found, None if step is None else int(step))
    return MappingProxyType(latest)


def _refusal(values: Mapping[str, Any]) -> TypeError:
    for name, value in values.items():
        try:
            float(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError, RuntimeError) as error:
            return TypeError(
                f"report() takes numbers, and {name!r} is a {type(value).__name__} that is none ({error}): reduce it "
                "to one number first, for instance with .mean()"
            )
    return TypeError("report() takes numbers")
