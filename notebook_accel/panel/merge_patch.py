"""Computes the changes between two states as a merge patch (RFC 7396)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MISSING = object()


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that turns `old` into `new`; empty if they are equal.

    Mappings are compared field by field, other values as a whole. No value may be `None`, which removes a field in a
    merge patch.
    """
    patch: dict[str, Any] = {}
    for name, value in new.items():
        before = old.get(name, _MISSING)
        if before is value:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            inner = diff(before, value)
            if inner:
                patch[name] = inner
        elif before != value:
            patch[name] = value
    patch.update(dict.fromkeys(old.keys() - new.keys()))
    return patch
