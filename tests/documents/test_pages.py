"""What every page has: what its reader can do after it, and how much of what it says about devices was tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.test_blocks import README, ROOT

GUIDES = sorted(set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "index.md"})
UNTRIED = re.compile(r"\b(?:GPUs?|TPUs?|NCCL|Colab|Kaggle|VS Code)\b")
"""What no test of this repository has met."""


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_page_opens_with_what_its_reader_can_do(page: Path) -> None:
    assert re.match(r"# .+\n\nAfter this page, (?:you|your) ", page.read_text())


@pytest.mark.parametrize(
    "page", [README, *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_that_names_an_untried_device_or_service_says_so(page: Path) -> None:
    text = page.read_text()
    assert not UNTRIED.search(text) or re.search(r"\buntested\b|#what-has-been-tested\b|not been run", text)
