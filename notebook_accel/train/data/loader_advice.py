"""What to write instead of a keyword that a prepared loader does not have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch.utils.data import DataLoader


def advice(keyword: str, given: Mapping[str, Any]) -> str:
    """What to write instead of a keyword of a class of prepared loaders; empty if nothing is known about it."""
    value = f"{given[keyword]!r:.60}"
    if keyword == "skip_batches":
        return f"prepare a DataLoader, and call skip_first_batches(loader, {value})"
    if keyword in inspect.signature(DataLoader).parameters:
        return (
            f"it wraps a DataLoader. Create DataLoader(dataset, {keyword}={value}, ...), and pass it to "
            "Accelerator.prepare or prepare_data_loader"
        )
    return ""
