"""Every block of code in the documents does what its page says: it runs, in a real kernel or a real shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_accel.config import file
from tests.documents import blocks
from tests.documents.blocks import Block
from tests.live_notebook import Notebook

ROOT = Path(__file__).parents[2]
APART = ROOT / "docs" / "frameworks.md"
"""It needs what `scripts/test-frameworks` installs, and is run there."""
README = ROOT / "README.md"
PAGES = [README, *sorted(set((ROOT / "docs").rglob("*.md")) - {APART})]
KINDS = {"python", "bash", "yaml", "text"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, notebook: Notebook, tmp_path: Path) -> None:
    """The commands of a page each import torch; one has this machine tested."""
    for block in blocks.read(page):
        assert block.kind in KINDS, f"{page.name}:{block.line}: a block must say what it is: {sorted(KINDS)}"
        if page == README and block.kind == "python":
            continue  # `test_first_cells.py` runs these, on one rank and on two
        if block.before:
            notebook.check(block.before)
        if not block.skipped:
            run(block, f"{page.name}:{block.line}", notebook, tmp_path)


def run(block: Block, where: str, notebook: Notebook, folder: Path) -> None:
    if block.kind == "python":
        cell = notebook.run(block.code, timeout=240)  # some train, and the machine may be busy
        assert cell.error is None, f"{where}\n{cell.traceback}"
    elif block.kind == "bash":
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=folder,
            env={**os.environ, "PATH": path, "NOTEBOOK_ACCEL_STATE": notebook.state},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{where}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    elif block.kind == "yaml":
        written = folder / "settings.yaml"
        written.write_text(block.code)
        content = file.read(written)
        assert content, where
        assert file.layer(content, written), where


def test_a_reason_stands_with_each_that_is_not_run() -> None:
    skipped = [block for page in PAGES for block in blocks.read(page) if block.skipped]
    assert all(len(block.skipped) > 10 for block in skipped)
    assert len(skipped) <= 14, "run one of the others instead"


def test_a_block_is_found_with_what_is_said_of_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    first = "<!-- before: a = 1\nb = 2 -->\n```python\na + b\n```"
    page.write_text(f"# A\n\n{first}\n\n<!-- not run: no -->\n```bash\nls\n```\n")
    one, other = blocks.read(page)
    assert (one.line, one.kind, one.code, one.before) == (5, "python", "a + b\n", "a = 1\nb = 2")
    assert (other.kind, other.skipped) == ("bash", "no")
