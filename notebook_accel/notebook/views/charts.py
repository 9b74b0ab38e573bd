"""Draws a metric over the run: a line for the mean of the ranks, and a band from the minimum to the maximum.

The picture is an SVG in an `<img>`, because the sanitizer for untrusted notebooks removes `<svg>` elements. It contains
no text, because text in an `<img>` would not take the colors of the page.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from notebook_accel.launch.job.metric_history import Spread

WIDTH, HEIGHT = 192, 64
_EDGE = 3
_LINE = "#2f81d0"
"""At least 3:1 on white and on black."""
_GRID = "#808080"


def source(points: Sequence[Spread]) -> str:
    """The chart as the `src` of an `<img>`."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg(points).encode()).decode()


def svg(points: Sequence[Spread]) -> str:
    """The chart as SVG."""
    scale = _Scale(points)
    mean = [scale(each.x, each.mean) for each in points]
    band = [scale(each.x, each.high) for each in points] + [scale(each.x, each.low) for each in reversed(points)]
    shapes = [f'<path d="M0 {HEIGHT - 0.5}H{WIDTH}M0.5 0V{HEIGHT}" fill="none" stroke="{_GRID}"/>']
    if any(each.low != each.high for each in points):
        shapes.append(f'<polygon points="{_joined(band)}" fill="{_LINE}" fill-opacity="0.3"/>')
    if len(mean) > 1:
        shapes.append(f'<polyline points="{_joined(mean)}" fill="none" stroke="{_LINE}" stroke-width="1.5"/>')
    else:
        shapes += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{_LINE}"/>' for x, y in mean]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f"{''.join(shapes)}</svg>"
    )


class _Scale:
    """Converts values to coordinates in the picture."""

    def __init__(self, points: Sequence[Spread]) -> None:
        self._left = min((each.x for each in points), default=0.0)
        self._width = (max((each.x for each in points), default=0.0) - self._left) or 1.0
        low, high = min((each.low for each in points), default=0.0), max((each.high for each in points), default=0.0)
        # Draw a constant metric in the middle, since at the bottom it would be on the edge.
        width = abs(low) or 1.0
        self._low, self._height = (low, high - low) if low < high else (low - width / 2, width)

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        right = (x - self._left) / self._width
        up = (y - self._low) / self._height
        return (
            round(_EDGE + right * (WIDTH - 2 * _EDGE), 1),
            round(HEIGHT - _EDGE - up * (HEIGHT - 2 * _EDGE), 1),
        )


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
