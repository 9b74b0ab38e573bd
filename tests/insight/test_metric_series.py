"""Every value of a metric, for a chart that somebody looks at closely."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from notebook_accel.events import Report, Reports
from notebook_accel.insight.metric_series import Feed, MetricSeries, width_of
from notebook_accel.launch.job.metric_charts import Bins, merged


def packed(*rows: tuple[int | None, float], attempt: int = 0, name: str = "loss") -> Reports:
    reports = [Report({name: value, "other": 0.0}, step, 1.0) for step, value in rows]
    (event,) = Reports.pack(reports)
    return Reports(event.names, attempt, columns=event.columns)


def feed(*pieces: list[tuple[int, Reports]]) -> Feed:
    """One that gives a piece at each call."""
    left: Iterator[list[tuple[int, Reports]]] = iter(pieces)
    return lambda: next(left, [])


def read(*entries: tuple[int, Reports]) -> MetricSeries:
    series = MetricSeries("loss", feed(list(entries)))
    assert series.read(math.inf)
    return series


def means(bins: Bins) -> list[tuple[int, int, float]]:
    return [(values.first, values.last, values.mean) for values in bins.values()]


def test_a_range_has_every_value_if_there_is_room() -> None:
    series = read((0, packed((0, 1.0), (1, 2.0), (2, 4.0))), (1, packed((0, 3.0), (1, 2.0))))
    assert series.extent == (0, 2)
    by_rank = series.binned(0, 1, 1)
    assert means(by_rank[1]) == [(0, 0, 3.0), (1, 1, 2.0)]
    assert means(merged(by_rank.values())) == [(0, 0, 2.0), (1, 1, 2.0)]


def test_steps_that_share_a_bin_keep_their_least_and_greatest_value() -> None:
    series = read((0, packed(*((step, 50.0 if step == 5 else 1.0) for step in range(16)))))
    (first, second) = series.binned(0, 15, 8)[0].values()
    assert (first.first, first.last, first.high, second.high) == (0, 7, 50.0, 1.0)


def test_values_that_are_not_finite_are_counted() -> None:
    series = read((0, packed((0, math.nan), (0, math.inf), (0, 2.0))))
    (values,) = series.binned(0, 0, 1)[0].values()
    assert (values.nan, values.above, values.finite_mean) == (1, 1, 2.0)


def test_reports_without_steps_are_counted() -> None:
    series = read((0, packed((None, 1.0), (None, 2.0))), (1, packed((None, 3.0))))
    assert not series.by_step
    assert means(merged(series.binned(0, 9, 1).values())) == [(1, 1, 2.0), (2, 2, 2.0)]


def test_a_report_without_a_step_belongs_to_the_step_before() -> None:
    assert means(read((0, packed((7, 1.0), (None, 3.0)))).binned(0, 9, 1)[0]) == [(7, 7, 2.0)]


def test_steps_that_begin_again_are_put_in_order() -> None:
    series = read((0, packed((0, 1.0), (1, 2.0))), (0, packed((0, 3.0), (1, 4.0))))
    assert means(series.binned(0, 1, 1)[0]) == [(0, 0, 2.0), (1, 1, 3.0)]


def test_only_the_last_attempt_counts() -> None:
    series = read((0, packed((0, 1.0))), (0, packed((0, 5.0), attempt=1)), (1, packed((9, 7.0))))
    assert means(merged(series.binned(0, 9, 1).values())) == [(0, 0, 5.0)]


def test_other_metrics_are_left_out() -> None:
    assert read((0, packed((0, 1.0), name="lr"))).ranks == {}
    mixed = Reports.pack([Report({"lr": 1.0}, 0, 1.0), Report({"lr": 2.0, "loss": 3.0}, 1, 1.0)])
    assert means(read(*((0, event) for event in mixed)).binned(0, 9, 1)[0]) == [(1, 1, 3.0)]


def test_reading_stops_at_its_deadline_and_continues_where_it_was() -> None:
    many = [(0, packed((step, float(step)))) for step in range(300)]
    series = MetricSeries("loss", feed(many, [(0, packed((300, 300.0)))]))
    turns = 0
    while not series.read(time.monotonic()):
        turns += 1
    assert turns > 1
    assert series.extent == (0, 299)
    assert series.read(math.inf)
    assert [values.mean for values in series.binned(298, 300, 1)[0].values()] == [298.0, 299.0, 300.0]


def test_bins_keep_their_width_while_a_run_grows() -> None:
    assert [width_of(0, high, 100) for high in (99, 150, 199, 250, 1000)] == [1, 2, 2, 4, 16]


def test_equal_values_are_drawn_flat() -> None:
    """The sum of three times 0.1 is not 0.3."""
    series = read((0, packed(*((step, 0.1) for step in range(99)))))
    for width in (3, 11):
        assert {values.finite_mean for values in series.binned(0, 98, width)[0].values()} == {0.1}
