"""Launches from the command line share a base server, as those of a user do."""

from collections.abc import Iterator

import pytest

from tests import shared_server


@pytest.fixture(scope="package", autouse=True)
def servers_are_forks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in shared_server.environment().items():
            patch.setenv(name, value)
        yield
