"""How signals become requests to stop."""

from __future__ import annotations

import os
import signal

import pytest

from notebook_accel.launch.driver.stop_policy import StopReason, StopRequests, catch_sigterm


def test_a_repeated_sigterm_takes_no_time_from_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second request would kill the ranks at once."""
    later: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: later.append(given))
    requests = StopRequests()
    with catch_sigterm(requests):
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert list(requests.received) == [StopReason.PREEMPTION]
        assert not later
    assert later == [(os.getpid(), signal.SIGTERM)], "it takes effect afterwards, once"
