"""What the tests of the command line share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_accel.launch import engines
from tests import shared_server


@pytest.fixture(scope="session", autouse=True)
def engines_end_with_the_session() -> Iterator[None]:
    yield
    for engine in engines.running.values():
        engine.close()


@pytest.fixture(scope="package", autouse=True)
def launches_share_a_base_server() -> Iterator[None]:
    """As those of a user do."""
    with shared_server.used():
        yield


@pytest.fixture(autouse=True)
def nothing_is_saved(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of whoever runs the tests are not theirs."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    for name in ("ACCELERATE_MIXED_PRECISION", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that says where it is among the ranks, and how it was called."""
    path = tmp_path / "train.py"
    path.write_text(
        "import os, sys\n"
        "print(__name__, os.environ.get('RANK', '-'), os.environ.get('WORLD_SIZE', '-'), *sys.argv[1:], sep='|')\n"
    )
    return path
