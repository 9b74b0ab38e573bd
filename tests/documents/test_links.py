"""What the pages outside of docs/ link to is there. (Those in docs/ are checked when the site is built.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.test_blocks import ROOT

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PAGES = [ROOT / name for name in ("README.md", "benchmarks/README.md")]


def anchors(page: Path) -> set[str]:
    """What its headings are called in links, as GitHub makes them."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(page.read_text()))
    return {heading.replace(" ", "-") for heading in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text())
    assert links
    for place, anchor in links:
        target = page.parent / place if place else page
        assert target.exists(), place
        assert not anchor or anchor in anchors(target), f"{place}#{anchor}"
