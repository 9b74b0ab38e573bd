"""The page and the example on other frameworks: each runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from tests.documents import blocks
from tests.documents.test_blocks import APART
from tests.documents.test_examples import execute
from tests.frameworks.conftest import LONG
from tests.live_notebook import Notebook


def test_the_blocks_of_the_page_run(notebook: Notebook) -> None:
    """Kernel, server and ranks import each framework, for seconds each."""
    found = [block for block in blocks.read(APART) if block.kind == "python"]
    assert len(found) > 4
    for block in found:
        if block.before:
            notebook.check(block.before, timeout=LONG)
        cell = notebook.run(block.code, timeout=LONG)
        assert cell.error is None, f"line {block.line}\n{cell.traceback}"


def test_the_example_runs(tmp_path: Path) -> None:
    """Kernel, server and ranks import each framework, for seconds each, and train with it."""
    said = execute("07_any_framework", tmp_path, timeout=int(LONG))
    results = re.findall(r"^\[\(2, (\S+)\), \(2, (\S+)\)\]$", said, re.MULTILINE)
    assert len(results) == 4
    assert all(float(first) == float(second) > 0.5 for first, second in results), results
    assert "Warning" not in said
