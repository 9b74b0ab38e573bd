"""Shortens texts of any length to their two ends and the number of characters left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def shortened(text: str, most: int) -> str:
    """The text itself, or `most` characters of it: the first and the last ones."""
    if len(text) <= most:
        return text
    tail = most // 4
    head = most - tail
    return f"{text[:head]} … [{len(text) - most:,} characters left out] … {text[len(text) - tail :]}"


def ends(items: Sequence[_Item], most: int) -> tuple[list[_Item], list[_Item]]:
    """The first and the last items, `most` of them together; if there are no more, the first list has them all."""
    if len(items) <= most:
        return list(items), []
    tail = most // 2
    return list(items[: most - tail]), list(items[len(items) - tail :])
