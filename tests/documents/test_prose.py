"""`scripts/check prose` finds wording in prose, and leaves code alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from proselint import checks
from proselint.registry import CheckRegistry

from scripts import prose


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    registry = CheckRegistry()
    registry.register_many((*checks.__register__, prose.table_of_words()))
    yield
    registry.checks.clear()


def places(path: Path) -> list[str]:
    return [line.split(": ")[0].removeprefix(f"{path}:") for line in prose.findings(path)]


def test_words_of_the_table_and_of_proselint_are_found_where_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code = "`goes on`\n\n```text\nit goes on\n```"
    page.write_text(f"# It goes on\n\nIt goes on: the the end.\n\n{code}\n\nThis is no end.\n")
    assert places(page) == ["1", "3", "3", "11"]


def test_in_sources_only_the_table_counts(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text('"""What nobody else\n\nreads the the same."""\n')
    assert places(source) == ["1"]


def test_the_text_of_a_notebook_is_checked_and_its_code_is_not(tmp_path: Path) -> None:
    cells = [{"cell_type": kind, "source": ["One.\n", "It goes on."]} for kind in ("code", "markdown")]
    notebook = tmp_path / "notebook.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    assert places(notebook) == ["cell 1, line 2"]
