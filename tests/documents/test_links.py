"""What the pages outside of docs/ link to is there. (Those in docs/ are checked when the site is built.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.test_blocks import ROOT

_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
PAGES = [ROOT / name for name in ("README.md", "SECURITY.md", "benchmarks/README.md")]


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


_SOURCE = re.compile(r"`([\w/]+\.py)`(?:: ((?:`\w+`(?:, )?)+))?")


@pytest.mark.parametrize("page", ["hardware", "inside", "security"])
def test_the_sources_that_a_page_names_are_there(page: str) -> None:
    """After a file, behind a colon, stand names that are in it."""
    found = _SOURCE.findall((ROOT / f"docs/{page}.md").read_text())
    assert found
    for path, names in found:
        source = next((each for each in (ROOT / "notebook_accel" / path, ROOT / path) if each.exists()), None)
        assert source is not None, path
        missing = [name for name in re.findall(r"\w+", names) if not re.search(rf"{name}\b", source.read_text())]
        assert not missing, f"{path}: {missing}"


def test_the_functions_by_which_a_page_tells_processes_apart_are_there() -> None:
    _, _, rest = (ROOT / "docs/inside.md").read_text().partition("| function | process |")
    cells = [row.split("|")[1] for row in rest.partition("\n\n")[0].splitlines()[2:]]
    named = {part for name in re.findall(r"`([\w.]+)`", " ".join(cells)) for part in name.split(".")}
    sources = [path.read_text() for path in (ROOT / "notebook_accel/launch").rglob("*.py")]
    missing = [name for name in named if not any(re.search(rf"(?:class|def) {name}\b", text) for text in sources)]
    assert named
    assert not missing
