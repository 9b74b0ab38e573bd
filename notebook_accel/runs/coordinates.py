"""The picture of parallel coordinates: an axis for each parameter and for the metric, a line for each trial."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.insight import pictures
from notebook_accel.launch.job import text
from notebook_accel.rank_spans import counted
from notebook_accel.runs.trial import Trial, shown

_GAP, _HEIGHT, _TOP, _SIDE, _BOTTOM = 130, 220, 34, 70, 14
_INK = "#767676"
"""Of text and axes: at least 4:1 on white and on the dark background of notebooks."""
_LINE, _BEST = "#2f81d0", "#e08a00"
"""At least 2.6:1 on white and 3:1 on black; the best trial is also drawn with a thicker, dashed line."""
_LOGARITHMIC = 30
"""An axis is logarithmic if its greatest value is so many times its least."""
_MOST_LABELS = 8


@dataclass(frozen=True)
class Axis:
    """One axis."""

    name: str
    place: Callable[[Trial], float | None]
    """Where a trial is on it, from 0 at the bottom to 1; `None` if it has no value."""
    marks: Sequence[tuple[float, str]]
    """Texts beside it, each with its place."""


class Coordinates:
    """A picture that a notebook shows. Its `svg` is the text of an SVG file."""

    def __init__(self, svg: str, words: str) -> None:
        self.svg = svg
        self._words = words

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        # In an `<img>`, because the sanitizer for untrusted notebooks removes `<svg>` elements.
        source = "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()
        image = f'<img src="{source}" alt="{html.escape(self._words)}" style="max-width:100%">'
        return pictures.picture(self._words, (), image)


def draw(trials: Sequence[Trial], best: Trial, metric: str) -> Coordinates:
    """Draws trials, the best one in front; each has a value of the metric."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.parameters))
    axes = [_axis(name, {trial.number: trial.parameters.get(name) for trial in trials}) for name in names]
    axes.append(_axis(metric, {trial.number: trial.measured[metric].last for trial in trials}))
    width = 2 * _SIDE + _GAP * (len(axes) - 1)
    shapes = [shape for index, axis in enumerate(axes) for shape in _drawn_axis(_SIDE + _GAP * index, axis)]
    for trial in [*(each for each in reversed(trials) if each is not best), best]:
        style = (
            f'stroke="{_BEST}" stroke-width="3" stroke-dasharray="9 3"'
            if trial is best
            else (f'stroke="{_LINE}" stroke-width="1.2" stroke-opacity="0.6"')
        )
        points = [(index, axis.place(trial)) for index, axis in enumerate(axes)]
        path = " ".join(f"{_SIDE + _GAP * index:g},{_y(place):g}" for index, place in points if place is not None)
        shapes.append(f'<polyline points="{path}" fill="none" {style}/>')
    height = _TOP + _HEIGHT + _BOTTOM
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11">{"".join(shapes)}</svg>'
    )
    count = counted(len(trials), "trial")
    value = text.value(best.measured[metric].last)
    words = f"{count} by {metric}; dashed: the best, trial {best.number}, {value}: {best.label}"
    return Coordinates(svg, words)


def _axis(name: str, values: dict[int, Any]) -> Axis:
    known = [value for value in values.values() if value is not None]
    if known and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known):
        return _of_numbers(name, values, [float(value) for value in known if math.isfinite(value)])
    return _of_choices(name, values)


def _of_numbers(name: str, values: dict[int, Any], finite: Sequence[float]) -> Axis:
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    is_logarithmic = low > 0 and high / low >= _LOGARITHMIC
    scale: Callable[[float], float] = math.log if is_logarithmic else float
    span = scale(high) - scale(low)

    def place(trial: Trial) -> float | None:
        value = values.get(trial.number)
        if value is None or not math.isfinite(value):
            return None
        return (scale(float(value)) - scale(low)) / span if span else 0.5

    marked = sorted({*finite}) if len({*finite}) <= _MOST_LABELS else [low, high]
    marks = [((scale(value) - scale(low)) / span if span else 0.5, text.value(value)) for value in marked]
    return Axis(f"{name} (log)" if is_logarithmic else name, place, _apart(marks))


def _of_choices(name: str, values: dict[int, Any]) -> Axis:
    words = {number: shown(value) for number, value in values.items()}
    choices = list(dict.fromkeys(words.values()))
    places = {choice: index / (len(choices) - 1) if len(choices) > 1 else 0.5 for index, choice in enumerate(choices)}
    return Axis(
        name, lambda trial: places.get(words.get(trial.number, "")), _apart([(at, each) for each, at in places.items()])
    )


def _apart(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """The marks without those that would cover one below them; the last one stays."""
    ordered, found = sorted(marks), list[tuple[float, str]]()
    for mark in ordered:
        if found and (mark[0] - found[-1][0]) * _HEIGHT < 13:
            if mark is ordered[-1]:
                found[-1] = mark
            continue
        found.append(mark)
    return found


def _y(place: float) -> float:
    return round(_TOP + (1 - place) * _HEIGHT, 1)


def _drawn_axis(x: float, axis: Axis) -> list[str]:
    title = html.escape(text.shortened(axis.name, 20))
    found = [
        f'<path d="M{x:g} {_TOP}V{_TOP + _HEIGHT}" stroke="{_INK}"/>',
        f'<text x="{x:g}" y="16" fill="{_INK}" font-weight="bold" text-anchor="middle">{title}</text>',
    ]
    for place, words in axis.marks:
        found.append(f'<path d="M{x - 3:g} {_y(place):g}h6" stroke="{_INK}"/>')
        label = html.escape(text.shortened(words, 12))
        found.append(f'<text x="{x + 6:g}" y="{_y(place) + 4:g}" fill="{_INK}">{label}</text>')
    return found
