"""Reads a notebook's file and its code cells, selected by tag, and writes the file with new outputs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from notebook_accel.errors import ConfigurationError

SKIPPED = "skip-execution"
"""The tag of cells to skip, as in nbclient."""
MAY_FAIL = "raises-exception"
"""The tag of cells whose errors do not stop the notebook, as in nbclient."""

Cell = dict[str, Any]


class Notebook:
    """A notebook as read from its file.

    Raises:
        ConfigurationError: It cannot be read, or is not of format 4.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read as a notebook: {error}") from error
        if not isinstance(self._content, dict) or self._content.get("nbformat") != 4:
            raise ConfigurationError(f"{path} is not a notebook of format 4: open it in Jupyter, and save it again")
        if not isinstance(self._content.get("cells"), list):
            raise ConfigurationError(f"{path} has no list of cells: it is damaged, or not a notebook")
        language = self._content.get("metadata", {}).get("language_info", {}).get("name", "python")
        if language != "python":
            raise ConfigurationError(f"{path} is a notebook in {language}, but only Python cells can be run")
        self._code: list[Cell] = [cell for cell in self._content["cells"] if cell["cell_type"] == "code"]

    def chosen(self, wanted: Sequence[str]) -> list[Cell]:
        """Returns the code cells with one of these tags, or all except those tagged to be skipped.

        Raises:
            ConfigurationError: No cell has such a tag.
        """
        if not wanted:
            return [cell for cell in self._code if SKIPPED not in tags(cell)]
        found = sorted({tag for cell in self._code for tag in tags(cell)})
        missing = [tag for tag in wanted if tag not in found]
        if missing:
            there = f"its tags are {', '.join(found)}" if found else "its cells have no tags"
            raise ConfigurationError(f"{self.path} has no code cell with the tag {missing[0]}: {there}")
        return [cell for cell in self._code if set(wanted) & set(tags(cell))]

    def clear(self) -> None:
        """Removes all outputs and execution counts."""
        for cell in self._code:
            cell |= {"outputs": [], "execution_count": None}

    def save(self, path: Path) -> None:
        """Writes the file atomically, so that a crash leaves no half-written notebook."""
        unfinished = path.with_name(f".{path.name}.unfinished")
        try:
            unfinished.write_text(json.dumps(self._content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()


def tags(cell: Cell) -> list[str]:
    """A cell's tags."""
    found: list[str] = cell.get("metadata", {}).get("tags", [])
    return found


def source(cell: Cell) -> str:
    """A cell's code."""
    return "".join(cell["source"])
