"""A metric in words: its last value, its best, least, and greatest, each with its step, and values not finite."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.launch.job.metric_charts import Drawing, Place
from notebook_accel.launch.job.text import spark, value

_UNUSUAL = "×"
"""Stands for values that are not finite, in a line of characters."""


@dataclass(frozen=True)
class MetricText:
    """The facts about one metric, as every view states them."""

    now: str
    """The last value, as it was reported; the mean if there are several at the last step."""
    range: str
    """`0.2 to 0.4 over ranks` at that step, or `over 8 reports` if a rank has made several; empty if they agree."""
    brief: str
    """What matters most beside the last value: `best 0.12 at step 400`; otherwise, the first value."""
    facts: list[str]
    """`last at step 1000`, and `best 0.12 at step 400`, and so on."""

    @property
    def line(self) -> str:
        """Everything in one line."""
        return ", ".join([self.now, *([self.range] if self.range else []), *self.facts])


def metric_text(drawing: Drawing) -> MetricText:
    """The facts about a metric."""
    last, first = drawing.last, drawing.first
    if first is None or last is None:
        return MetricText("…", "", "", [])
    low, high = value(last.low), value(last.high)
    over = "ranks" if last.count <= drawing.ranks else f"{last.count} reports"
    spread = f"{low} to {high} over {over}" if last.low < last.high and low != high else ""
    facts = [f"last {_at(drawing, last.last)}"]
    if first.first != last.last:
        facts.append(f"first {_stated(drawing, Place(first.mean, first.first))}")
    facts += _extremes(drawing)
    count = drawing.nan + drawing.infinite
    if count:
        kinds = [f"{drawing.nan} NaN"] if drawing.nan else []
        kinds += [f"{drawing.infinite} infinite"] if drawing.infinite else []
        where = "first " if count > 1 else ""
        facts.append(f"{' and '.join(kinds)}, {where}{_at(drawing, drawing.first_unusual)}")
    brief = f"from {_stated(drawing, Place(first.mean, first.first))}" if first.first != last.last else spread
    if drawing.best is not None and first.first != last.last:
        brief = f"best {_stated(drawing, drawing.best)}"
    return MetricText(value(last.mean), spread, brief, facts)


def _extremes(drawing: Drawing) -> list[str]:
    """The best mean over the ranks, and the least and the greatest value of any rank."""
    best, least, most = drawing.best, drawing.least, drawing.most
    if least is None or most is None or least.value == most.value:
        return []
    name = "best mean" if drawing.ranks > 1 else "best"
    found = [] if best is None or best in (least, most) else [f"{name} {_stated(drawing, best)}"]
    for name, place in (("min", least), ("max", most)):
        found.append(f"{name} {_stated(drawing, place)}" + (" (best)" if place == best else ""))
    return found


def _stated(drawing: Drawing, place: Place) -> str:
    return f"{value(place.value)} {_at(drawing, place.x)}"


def _at(drawing: Drawing, x: int) -> str:
    return f"at step {x}" if drawing.by_step else f"at report {x}"


def metric_spark(drawing: Drawing) -> str:
    """The chart as a line of characters, in which a cross stands for values that are not finite."""
    finite = [values for values in drawing.bins if values.is_finite and values.count]
    drawn = iter(spark([values.finite_mean for values in finite]))
    return "".join(next(drawn) if values.is_finite and values.count else _UNUSUAL for values in drawing.bins)
