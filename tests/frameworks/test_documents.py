"""The example and the page on other frameworks, one after the other in one kernel."""

from __future__ import annotations

import re

import nbformat
import pytest

from tests.documents import blocks
from tests.documents.test_blocks import APART
from tests.documents.test_examples import EXAMPLES
from tests.frameworks.conftest import LONG, wait_for_server
from tests.live_notebook import Notebook

pytestmark = pytest.mark.nightly  # the other files launch each framework, too


def test_the_example_runs(notebook: Notebook) -> None:
    """Kernel and server, or ranks, import each framework, for seconds each, and train with it, for fewer epochs."""
    notebook.check("import lightning, sklearn.datasets, transformers\nfrom transformers import Trainer", timeout=LONG)
    wait_for_server(notebook)
    said = []
    for cell in nbformat.read(EXAMPLES / "07_any_framework.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            ran = notebook.check(cell.source.replace("num_train_epochs=10", "num_train_epochs=4"), timeout=LONG)
            said += [ran.text, ran.value or ""]
    results = re.findall(r"^\[\(2, (\S+)\), \(2, (\S+)\)\]$", "\n".join(said), re.MULTILINE)
    assert len(results) == 4
    assert all(float(first) == float(second) > 0.5 for first, second in results), results
    assert "Warning" not in "\n".join(said)


def test_the_blocks_of_the_page_run(notebook: Notebook) -> None:
    """Kernel and ranks import each framework, for seconds each."""
    found = [block for block in blocks.read(APART) if block.kind == "python"]
    assert len(found) > 4
    for block in found:
        if block.before:
            notebook.check(block.before, timeout=LONG)
        cell = notebook.run(block.code, timeout=LONG)
        assert cell.error is None, f"line {block.line}\n{cell.traceback}"
