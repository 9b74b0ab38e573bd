"""Checks the numbers that users pass to a job's methods."""

from __future__ import annotations

import math
import numbers
import threading
from typing import TypeGuard

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import as_float

_SECONDS = "a number of seconds"


def is_number(value: object) -> TypeGuard[numbers.Real]:
    """Whether it is a real number, also one of NumPy's, other than NaN. Truth values are none."""
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and not math.isnan(as_float(value))


def checked(
    name: str, value: object, *, above: float | None = None, most: float = math.inf, what: str = _SECONDS
) -> float:
    """Returns a number as a float, infinity if it is beyond all floats.

    Args:
        name: The name of the argument.
        value: What the user passed.
        above: The number must be greater than this; by default, it may be any number.
        most: The number must not be greater than this.
        what: What the argument must be, for the message.

    Raises:
        ConfigurationError: It is not a number, or out of range.
    """
    if is_number(value):
        number = as_float(value)
        if (above is None or number > above) and number <= most:
            return number
    limits = "" if above is None else f" above {above:g} and at most {most:g}"
    raise ConfigurationError(f"{name} must be {what}{limits}, not {value!r:.80}")


def timeout(value: object, what: str = _SECONDS) -> float:
    """Returns how many seconds to wait, at most as long as a thread can. Without time left, a wait ends at once.

    Raises:
        ConfigurationError: It is not a number.
    """
    return min(checked("timeout", value, what=what), threading.TIMEOUT_MAX)
