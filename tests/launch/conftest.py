"""The engines that the tests of a session share."""

from collections.abc import Iterator

import pytest

from notebook_accel.launch import engines


@pytest.fixture(scope="session", autouse=True)
def engines_end_with_the_session() -> Iterator[None]:
    yield
    for engine in engines.running.values():
        engine.close()
