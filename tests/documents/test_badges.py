"""The badges in the README lead to what is there."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest

from scripts import badges
from tests.documents.test_blocks import ROOT


def test_the_readme_has_the_badges_of_the_projects_address() -> None:
    text = badges.README.read_text()
    assert badges.with_badges(text, badges.address()) == text, "run .venv/bin/python scripts/badges.py"


def test_badges_lead_to_files_of_the_repository() -> None:
    text = badges.badges("https://github.com/an-owner/a.name.git")
    places = re.findall(r"/an-owner/a\.name/(?:blob/main/|main\?labpath=)([^)]+)", text)
    assert len(places) == 3
    assert all((ROOT / unquote(place)).is_file() for place in places)
    assert (ROOT / "binder" / "requirements.txt").is_file()
    assert "https://kaggle.com/kernels/welcome?src=https://github.com/an-owner/a.name/blob/main/examples/" in text
    assert 'git+https://github.com/an-owner/a.name"' in text


def test_an_address_that_colab_cannot_open_is_refused() -> None:
    with pytest.raises(ValueError, match="Colab opens notebooks from there alone"):
        badges.with_badges(badges.README.read_text(), "https://example.org/an-owner/name")
