"""Spans of time as users write them: `5 min`, `8h30m`, `90 s`."""

from __future__ import annotations

import re

_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
"""By the first letter of a unit, however it is written."""
_PART = r"(\d+(?:\.\d+)?)\s*(d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)"
_WHOLE = re.compile(rf"\s*{_PART}(?:\s*{_PART}){{0,3}}\s*", re.IGNORECASE)


def seconds(text: str) -> float | None:
    """The number of seconds, above 0; `None` if the text is not a span of time."""
    if len(text) > 80 or not _WHOLE.fullmatch(text):
        return None
    found = sum(float(number) * _SECONDS[unit[0].lower()] for number, unit in re.findall(_PART, text, re.IGNORECASE))
    return found or None
