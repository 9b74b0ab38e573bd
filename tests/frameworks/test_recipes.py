"""The recipes among the examples, each run from top to bottom; what they train is small, and is made in place."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.documents.test_examples import EXAMPLES, RECIPES
from tests.frameworks.conftest import LONG, wait_for_server
from tests.live_notebook import Notebook


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs(name: str, notebook: Notebook, tmp_path: Path) -> None:
    """Long: kernel and server import what is trained with, and it trains."""
    notebook.check(f"%reset -f\nimport os\nos.chdir({str(tmp_path)!r})")
    notebook.check(
        "import datasets, lightning, notebook_accel, peft, trl\nfrom transformers import LlamaForCausalLM",
        timeout=LONG,
    )
    wait_for_server(notebook)
    said = []
    for cell in nbformat.read(EXAMPLES / "recipes" / f"{name}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            ran = notebook.run(cell.source, timeout=LONG)
            assert (ran.error is not None) == ("raises-exception" in cell.metadata.get("tags", ())), ran.traceback
            said += [ran.text, ran.value or "", ran.error_text]
    text = "\n".join(said)
    assert [words for words in RECIPES[name] if words not in text] == []
    assert "Warning" not in text
