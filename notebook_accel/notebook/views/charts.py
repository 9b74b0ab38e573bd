"""Draws a metric over the run: a line for the mean of the ranks, and a band from the minimum to the maximum.

A step at which a value is not finite has a mark: a dashed line for NaN, a short line at the top or bottom for infinity.
Where no value is finite, the line is broken.

The picture is an SVG in an `<img>`, because the sanitizer for untrusted notebooks removes `<svg>` elements. It contains
no text, because text in an `<img>` would not take the colors of the page.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from notebook_accel.launch.job.metrics.job_charts import Drawing
from notebook_accel.launch.job.metrics.metric_values import Spread

WIDTH, HEIGHT = 192, 64
_EDGE = 3
_LINE = "#2f81d0"
"""At least 3:1 on white and on black."""
_MARK = "#d64545"
"""At least 3:1 on white and on black."""
_GRID = "#808080"
_MARKS = {
    "nan": (0.0, 1.0, ' stroke-dasharray="3 2"'),
    "inf": (0.0, 0.2, ""),
    "-inf": (0.8, 1.0, ""),
}
"""For each kind of mark, from where to where it goes, as fractions of the height from the top, and its style."""


def source(drawing: Drawing) -> str:
    """The chart as the `src` of an `<img>`."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg(drawing).encode()).decode()


def svg(drawing: Drawing) -> str:
    """The chart as SVG."""
    segments = drawing.segments
    scale = Scale(drawing)
    shapes = [f'<path d="M0 {HEIGHT - 0.5}H{WIDTH}M0.5 0V{HEIGHT}" fill="none" stroke="{_GRID}"/>']
    for segment in segments:
        shapes += _segment(segment, scale)
    for mark in drawing.marks:
        top, bottom, style = _MARKS[mark.kind]
        x = _across(scale.x(mark.x))
        shapes.append(
            f'<path d="M{x:g} {top * HEIGHT:g}V{bottom * HEIGHT:g}" stroke="{_MARK}" stroke-width="1.5"{style}/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(shapes)}</svg>"
    )


def _segment(points: Sequence[Spread], scale: Scale) -> list[str]:
    """The band and the line of points without a gap between them."""
    mean = [_place(scale, each.x, each.mean) for each in points]
    band = [_place(scale, each.x, each.high) for each in points]
    band += [_place(scale, each.x, each.low) for each in reversed(points)]
    if len(mean) == 1:
        (x, y), (_, top), (_, bottom) = mean[0], band[0], band[1]
        shape = [f'<path d="M{x:g} {top:g}V{bottom:g}" stroke="{_LINE}"/>'] if top != bottom else []
        return [*shape, f'<circle cx="{x:g}" cy="{y:g}" r="2.5" fill="{_LINE}"/>']
    shapes = []
    if any(each.low != each.high for each in points):
        shapes.append(f'<polygon points="{_joined(band)}" fill="{_LINE}" fill-opacity="0.3"/>')
    return [*shapes, f'<polyline points="{_joined(mean)}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>']


class Scale:
    """Converts positions and values to fractions of the chart's width and height."""

    def __init__(self, drawing: Drawing) -> None:
        points = [point for segment in drawing.segments for point in segment]
        self._left, self._width = _extent([*(point.x for point in points), *(mark.x for mark in drawing.marks)])
        self._bottom, self._height = _extent(edge for point in points for edge in (point.low, point.high))

    def x(self, x: float) -> float:
        return (x - self._left) / self._width

    def y(self, value: float) -> float:
        """0 is the bottom."""
        return (value - self._bottom) / self._height


def _extent(values: Iterable[float]) -> tuple[float, float]:
    """The lowest value and the range of the values; equal values are placed in the middle."""
    found = list(values)
    low, high = min(found, default=0.0), max(found, default=0.0)
    width = abs(low) or 1.0
    return (low, high - low) if low < high else (low - width / 2, width)


def _place(scale: Scale, x: float, y: float) -> tuple[float, float]:
    """The coordinates in the picture."""
    return _across(scale.x(x)), round(HEIGHT - _EDGE - scale.y(y) * (HEIGHT - 2 * _EDGE), 1)


def _across(right: float) -> float:
    return round(_EDGE + right * (WIDTH - 2 * _EDGE), 1)


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
