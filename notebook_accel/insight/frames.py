"""Rows of a table as a DataFrame of pandas, where that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pandas import DataFrame

_Row = TypeVar("_Row")


def dataframe(rows: list[_Row], columns: Sequence[str] | None = None) -> DataFrame | list[_Row]:
    """The rows as a DataFrame if pandas is installed, otherwise as they are."""
    try:
        import pandas as pd
    except ImportError:
        return rows
    return pd.DataFrame(rows, columns=None if columns is None else list(columns))
