"""A rank tells that its main thread imports a module, what, and that the import goes on."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from notebook_accel.events import Event, Phase, PhaseChanged
from notebook_accel.launch.rank.stacks import imports
from notebook_accel.launch.rank.stacks.imports import REPORTED_AFTER, ImportDetector


class Importing:
    """A thread that imports a module of a folder, which stays in its last line until it is let go on."""

    def __init__(self, name: str) -> None:
        self.gate = types.ModuleType("gate_of_test")
        self.gate.entered, self.gate.left = threading.Event(), threading.Event()  # type: ignore[attr-defined]
        sys.modules["gate_of_test"] = self.gate
        self.thread = threading.Thread(target=__import__, args=(name,), daemon=True)

    def __enter__(self) -> Importing:
        self.thread.start()
        assert self.gate.entered.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.left.set()
        self.thread.join(20)
        del sys.modules["gate_of_test"]

    @property
    def frame(self) -> types.FrameType:
        assert self.thread.ident is not None
        return sys._current_frames()[self.thread.ident]


class Clock:
    """The time that the detector sees."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(imports, "time", made)
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where modules are, which count as installed."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.syspath_prepend(str(packages))
    yield packages
    for name in ("slow_outer", "slow_inner", "own_module"):
        sys.modules.pop(name, None)


HOLD = "import gate_of_test\ngate_of_test.entered.set()\ngate_of_test.left.wait()\n"


def sample(detector: ImportDetector, importing: Importing) -> list[Event]:
    detector.add(importing.frame)
    return detector.take()


def test_an_import_that_lasts_is_told_with_its_outermost_module_and_its_beginning(folder: Path, clock: Clock) -> None:
    (folder / "slow_outer.py").write_text("import slow_inner\n")
    (folder / "slow_inner.py").write_text(HOLD)
    detector = ImportDetector(lambda: Phase.LOADING)
    with Importing("slow_outer") as importing:
        assert sample(detector, importing) == []
        clock.now += REPORTED_AFTER
        assert sample(detector, importing) == [PhaseChanged(Phase.LOADING, "import slow_outer", since=1000.0)]
        clock.now += 5
        assert sample(detector, importing) == []  # no further module
        sys.modules["another_of_test"] = types.ModuleType("another_of_test")
        try:
            assert sample(detector, importing) == [PhaseChanged(Phase.LOADING, "import slow_outer", since=1000.0)]
        finally:
            del sys.modules["another_of_test"]
        detector.add(sys._getframe())
        assert detector.take() == [PhaseChanged(Phase.LOADING)]
        assert detector.take() == []


def test_short_imports_and_ends_of_calls_are_not_told(folder: Path, clock: Clock) -> None:
    (folder / "slow_outer.py").write_text(HOLD)
    detector = ImportDetector(lambda: Phase.RUNNING)
    with Importing("slow_outer") as importing:
        assert sample(detector, importing) == []
        clock.now += REPORTED_AFTER / 2
        assert sample(detector, importing) == []
        detector.add(sys._getframe())
        assert detector.take() == []
        sample(detector, importing)
        clock.now += REPORTED_AFTER
        assert len(sample(detector, importing)) == 1
        detector.reset()
        detector.add(sys._getframe())
        assert detector.take() == []


def test_the_users_own_module_that_trains_while_it_is_imported_is_no_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, clock: Clock
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    spinning = "while not gate_of_test.left.is_set(): pass"
    (own / "own_module.py").write_text(HOLD.replace("gate_of_test.left.wait()", spinning))
    monkeypatch.syspath_prepend(str(own))
    detector = ImportDetector(lambda: Phase.RUNNING)
    with Importing("own_module") as importing:
        sample(detector, importing)
        clock.now += 100
        assert sample(detector, importing) == []
