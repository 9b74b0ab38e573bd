"""The kernel that all pages share: a server that has imported torch serves them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.conftest import end
from tests.live_notebook import Notebook


@pytest.fixture(scope="session")
def kernel() -> Iterator[Notebook]:
    notebook = Notebook()
    yield notebook
    end(notebook, within=30)  # what is asked here is whether the page is right


@pytest.fixture
def notebook(kernel: Notebook, tmp_path: Path) -> Iterator[Notebook]:
    """A kernel with no names in it, in an empty folder."""
    kernel.check(f"%reset -f\nimport os\nos.chdir({str(tmp_path)!r})\nimport notebook_accel")
    yield kernel
    kernel.run("%accelerate stop")  # an error where a page has started no ranks
    kernel.check("%accelerate --reset")
