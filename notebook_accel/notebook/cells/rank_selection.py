"""Parses selections of ranks, such as `0,2-3`."""

from __future__ import annotations

import re

from notebook_accel.errors import ConfigurationError


def parse_ranks(option: str, text: str, size: int) -> list[int]:
    """Parses `0,2-3` or `all` into rank numbers.

    Raises:
        ConfigurationError: The text is not valid, or there is no such rank.
    """
    if text == "all":
        return list(range(size))
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ConfigurationError(f"{option} {text}: write ranks as 0,2-3, or all")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not found or not found <= set(range(size)):
        there = f"the ranks are 0 to {size - 1}" if size > 1 else "the only rank is 0"
        raise ConfigurationError(f"{option} {text}: {there}")
    return sorted(found)
