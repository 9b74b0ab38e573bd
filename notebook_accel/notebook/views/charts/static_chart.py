"""Draws a metric over the run: a line for the mean of the ranks, and a band from the minimum to the maximum.

A step at which a value is not finite has a mark: a dashed line for NaN, a short line at the top or bottom for infinity.
Where no value is finite, the line is broken.

The picture is an SVG in an `<img>`, because the sanitizer for untrusted notebooks removes `<svg>` elements. It contains
no text, because text in an `<img>` would not take the colors of the page: `chart_axes.py` puts the numbers beside it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from notebook_accel.launch.job.metric_charts import Drawing, Spread
from notebook_accel.notebook.views.charts.ticks import three_ticks

WIDTH, HEIGHT = 220, 96
EDGE = 8
"""Between the border of the picture and its outer grid lines: half the height of a number beside them."""
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
    scale = Scale(drawing)
    shapes = [_grid(scale)]
    for segment in drawing.segments:
        shapes += _segment(segment, scale)
    for mark in drawing.marks:
        top, bottom, style = _MARKS[mark.kind]
        x = scale.x(mark.x)
        shapes.append(
            f'<path d="M{x:g} {top * HEIGHT:g}V{bottom * HEIGHT:g}" stroke="{_MARK}" stroke-width="1.5"{style}/>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'preserveAspectRatio="none">'
        f"{''.join(shapes)}</svg>"
    )


class Scale:
    """Converts steps and values to coordinates in the picture."""

    def __init__(self, drawing: Drawing) -> None:
        points = [point for segment in drawing.segments for point in segment]
        self.ticks = three_ticks(edge for point in points for edge in (point.low, point.high))
        """The values at the bottom, in the middle, and at the top."""
        self.left, self._width = _extent(point.x for point in drawing.points)
        self.right = self.left + self._width

    def x(self, x: float) -> float:
        return round(1 + (x - self.left) / self._width * (WIDTH - 2), 1)

    def y(self, value: float) -> float:
        bottom, _, top = self.ticks
        share = value / (top - bottom) - bottom / (top - bottom)  # in this order, the greatest floats don't overflow
        return round(HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE), 1)


def _grid(scale: Scale) -> str:
    lines = "".join(f"M0 {scale.y(tick):g}H{WIDTH}" for tick in scale.ticks)
    return f'<path d="{lines}" fill="none" stroke="{_GRID}" stroke-opacity="0.35"/>'


def _segment(points: Sequence[Spread], scale: Scale) -> list[str]:
    """The band and the line of points without a gap between them."""
    mean = [(scale.x(each.x), scale.y(each.mean)) for each in points]
    band = [(scale.x(each.x), scale.y(each.high)) for each in points]
    band += [(scale.x(each.x), scale.y(each.low)) for each in reversed(points)]
    if len(mean) == 1:
        (x, y), (_, top), (_, bottom) = mean[0], band[0], band[1]
        shape = [f'<path d="M{x:g} {top:g}V{bottom:g}" stroke="{_LINE}"/>'] if top != bottom else []
        return [*shape, f'<circle cx="{x:g}" cy="{y:g}" r="2.5" fill="{_LINE}"/>']
    shapes = []
    if any(each.low != each.high for each in points):
        shapes.append(f'<polygon points="{_joined(band)}" fill="{_LINE}" fill-opacity="0.3"/>')
    return [*shapes, f'<polyline points="{_joined(mean)}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>']


def _extent(values: Iterable[float]) -> tuple[float, float]:
    """The lowest value and the range of the values; equal values are placed in the middle."""
    found = list(values)
    low, high = min(found, default=0.0), max(found, default=0.0)
    width = abs(low) or 1.0
    return (low, high - low) if low < high else (low - width / 2, width)


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
