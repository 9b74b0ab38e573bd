"""What the tests of engines share."""

import dataclasses

import pytest

from notebook_accel.launch.wire.mirrored import notebook_state


@pytest.fixture(autouse=True)
def ranks_start_light(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned rank would import torch to take its state on, which takes seconds; that is tested with the payload."""
    capture = notebook_state.capture
    monkeypatch.setattr(notebook_state, "capture", lambda: dataclasses.replace(capture(), numbers=None))
