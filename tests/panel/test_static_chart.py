"""The numbers at the grid lines of a chart in the saved notebook."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from notebook_accel.panel.static_chart import three_ticks, tick_texts


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.1, 1.05], ["0", "0.6", "1.2"]),
        ([0.02, 2.0], ["0", "1", "2"]),
        ([-0.05, 2.1], ["-0.75", "0.75", "2.25"]),  # not from -2.5, which would take half of the height
        ([2.3, 2.31], ["2.298", "2.304", "2.31"]),
        ([100.0, 100.001], ["100", "100.0005", "100.001"]),  # four digits would not tell them apart
        ([3.0, 3.0], ["2.2", "3", "3.8"]),
        ([], ["-1", "0", "1"]),
        ([-1e300, 1e300], ["-1e300", "0", "1e300"]),
    ],
)
def test_ticks_are_round_and_differ(values: list[float], texts: list[str]) -> None:
    assert tick_texts(three_ticks(values)) == texts


@given(some.lists(some.floats(-1e300, 1e300), max_size=4))
def test_ticks_enclose_every_value(values: list[float]) -> None:
    bottom, middle, top = three_ticks(values)
    assert bottom < middle < top
    slack = 1e-8 * max(abs(bottom), abs(top))
    assert all(bottom - slack <= value <= top + slack for value in values)
