"""`notebook_accel.utils`: `accelerate.utils`, as far as it is here."""

from __future__ import annotations

import importlib
import inspect

import accelerate.utils
import pytest

import notebook_accel
from notebook_accel import exports, utils

DEEPER = {
    name: importlib.import_module(f"accelerate.{row.accelerate}")
    for row in exports.TABLE
    if row.accelerate
    for name in row.names
    if not hasattr(accelerate.utils, name)
}
"""For names that Accelerate does not have in `utils` itself: the module that has them."""
# Fewer arguments than Accelerate's, whose others are for what is not here.
SHORTER = {"recursively_apply": "data"}


def of_accelerate(name: str) -> object:
    return getattr(DEEPER.get(name, accelerate.utils), name)


@pytest.mark.parametrize("name", utils.__all__)
def test_a_name_is_that_of_accelerate(name: str) -> None:
    ours, theirs = getattr(utils, name), of_accelerate(name)
    assert inspect.isclass(ours) == inspect.isclass(theirs)
    assert not isinstance(ours, str) or ours == theirs


@pytest.mark.parametrize("name", [name for name in utils.__all__ if inspect.isfunction(getattr(utils, name))])
def test_a_function_takes_the_arguments_of_accelerates(name: str) -> None:
    ours = list(inspect.signature(getattr(utils, name)).parameters)
    theirs = list(inspect.signature(of_accelerate(name)).parameters)  # type: ignore[arg-type]
    if name in SHORTER:
        theirs = theirs[: theirs.index(SHORTER[name]) + 1]
        ours = ours[: len(theirs)]
    assert ours == theirs


def test_what_the_package_exports_of_accelerates_utils_is_here() -> None:
    shared = {name for name in notebook_accel.__all__ if hasattr(accelerate.utils, name)}
    assert shared <= set(utils.__all__)
    assert all(getattr(notebook_accel, name) is getattr(utils, name) for name in shared)
