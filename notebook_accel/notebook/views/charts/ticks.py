"""Chooses the values at the grid lines of a chart."""

from __future__ import annotations

import math
from collections.abc import Iterable

from notebook_accel.launch.job.text import value

_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""The mantissas of the distance between two grid lines: close to each other, so that little of the height is lost."""
_DIGITS = 12
"""Digits of a tick, which removes errors of rounding such as 0.30000000000000004."""
_RESOLUTION = 1e-9
"""Values whose range is a smaller part of them are drawn as equal ones."""


def three_ticks(values: Iterable[float]) -> tuple[float, float, float]:
    """Round values for the bottom, the middle and the top of a chart that shows all of `values`.

    Args:
        values: Finite values. Equal ones get ticks around them; none get -1, 0 and 1.
    """
    found = list(values)
    low, high = min(found, default=0.0), max(found, default=0.0)
    if high / 2 - low / 2 <= _RESOLUTION * max(abs(low), abs(high)):
        step = _round_up(abs(low) / 4) if low else 1.0
        return _tick(low - step), low, _tick(low + step)
    step = _round_up(high / 2 - low / 2)
    while True:
        for unit in (step, step / 2):  # the latter where values cross zero by little, which would take half the height
            bottom = math.floor(low / unit) * unit
            if bottom + 2 * step >= high - step * 1e-9:
                return _tick(bottom), _tick(bottom + step), _tick(bottom + 2 * step)
        step = _round_up(step * 1.01)


def tick_texts(ticks: Iterable[float]) -> list[str]:
    """The ticks as text, with as many digits as it takes to tell them apart, and the usual four at least."""
    found = list(ticks)
    texts = [value(tick) for tick in found]
    for digits in range(5, _DIGITS + 1):
        if len(set(texts)) == len(found):
            break
        texts = [f"{tick:.{digits}g}" for tick in found]
    return texts


def _round_up(step: float) -> float:
    """The next round number from `step` up."""
    power: float = 10.0 ** math.floor(math.log10(max(step, 1e-300)))
    return next(mantissa * power for mantissa in _ROUND if mantissa * power >= step * (1 - 1e-9))


def _tick(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") + 0.0
