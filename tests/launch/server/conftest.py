"""What the tests of engines share, for the server too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from notebook_accel.launch.server import store
from tests.launch.engines.conftest import ranks_start_light  # noqa: F401


@pytest.fixture(scope="module", autouse=True)
def guard_ends() -> Iterator[None]:
    """The process that guards the stores of tests ends with them."""
    yield
    store.end_guard()
