"""What `constraints.txt` pins can be installed on every Python that the package supports, from its first release."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PINS = [
    Requirement(line)
    for line in Path(__file__).parents[1].joinpath("constraints.txt").read_text().splitlines()
    if not line.startswith("#")
]


def pythons(pin: Requirement) -> SpecifierSet | None:
    """The Pythons that the pinned version is for, by its own metadata; none if another version is installed."""
    try:
        found = distribution(pin.name)
    except PackageNotFoundError:
        return None
    return SpecifierSet(found.metadata["Requires-Python"] or "") if found.version in pin.specifier else None


@pytest.mark.parametrize("python", ["3.10.0", "3.11.0", "3.12.0", "3.13.0"])
def test_a_version_is_pinned_only_for_pythons_that_it_is_for(python: str) -> None:
    here = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    pinned = {str(pin): pythons(pin) for pin in PINS if pin.marker is None or pin.marker.evaluate(here)}
    assert sum(each is not None for each in pinned.values()) > 100
    assert [name for name, each in pinned.items() if each is not None and python not in each] == []
