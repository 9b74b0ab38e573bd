"""How far a node's clock is ahead, whatever the messages took on their way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.launch.cluster import clock_offset
from notebook_accel.launch.cluster.clock_offset import ClockOffset
from notebook_accel.launch.cluster.connection import FrameConnection
from notebook_accel.launch.cluster.protocol import Frame

AHEAD = 3.25
ROUNDING = 1e-9
DELAYS = st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)), min_size=8, max_size=8)


class Network(FrameConnection):
    """The bridge's clocks and its link to a node, whose messages take these seconds there and back."""

    def __init__(self, delays: Sequence[tuple[float, float]]) -> None:
        self.sent: list[str] = []
        self._now = 100.0
        self._delays: Iterator[tuple[float, float]] = iter(delays)
        self._back = 0.0

    def time(self) -> float:
        return self._now

    monotonic = time

    def send(self, frames: Sequence[Frame]) -> None:
        ((header, _),) = frames
        self.sent.append(header["op"])
        if header["op"] == "clock":
            there, self._back = next(self._delays)
            self._now += there

    def receive(self, *, wait: bool = False) -> list[tuple[dict[str, Any], list[Any]]]:
        assert wait
        there = self._now + AHEAD
        self._now += self._back
        return [({"op": "clock", "at": there}, [])]


def measured(network: Network) -> ClockOffset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_offset, "time", network)
        return clock_offset.measure(network)


@given(DELAYS)
def test_it_is_as_exact_as_it_says(delays: list[tuple[float, float]]) -> None:
    network = Network(delays)
    found = measured(network)
    assert abs(found.ahead - AHEAD) <= found.error + ROUNDING
    assert network.sent == ["clock"] * 8 + ["measured"]


def test_one_quick_answer_among_late_ones_is_enough() -> None:
    found = measured(Network([(0.3, 0.001)] * 4 + [(0.0001, 0.0002)] + [(0.001, 0.4)] * 3))
    assert found.error == pytest.approx(0.00015)
    assert found.ahead == pytest.approx(AHEAD, abs=0.00015)
