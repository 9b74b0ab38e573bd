"""What the tests of engines share."""

import dataclasses

import pytest

from notebook_accel.launch.wire import mirror


@pytest.fixture(autouse=True)
def ranks_start_light(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned rank would import torch to take its state on, which takes seconds; that is tested with the payload."""
    capture = mirror.capture
    monkeypatch.setattr(mirror, "capture", lambda: dataclasses.replace(capture(), numbers=None))
