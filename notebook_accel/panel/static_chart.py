"""Draws a metric over the run: a line for the mean of the ranks, and a band from the minimum to the maximum.

A step at which a value is not finite has a mark: a dashed line for NaN, a short line at the top or bottom for infinity.
Where no value is finite, the line is broken.

The picture is an SVG in an `<img>`, because the sanitizer for untrusted notebooks removes `<svg>` elements. It contains
no text, because text in an `<img>` would not take the colors of the page. The numbers beside it, the values at its grid
lines and its first and last step, are HTML. They are in a table whose alignment is also written as attributes, so they
keep their places in front ends that remove styles.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence

from notebook_accel.insight.pictures import element, text
from notebook_accel.launch.job.metric_charts import Drawing, Spread
from notebook_accel.launch.job.text import value
from notebook_accel.panel.panel_charts import extent

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
_CELL = "border:0;background-color:transparent;white-space:nowrap;font-size:11px;line-height:16px"
_IMAGE = f"display:block;margin:0;width:100%;height:{HEIGHT}px"
_ROWS = ("bottom", "middle", "top")
_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""The mantissas of the distance between two grid lines: close to each other, so that little of the height is lost."""
_DIGITS = 12
"""Digits of a tick, which removes errors of rounding such as 0.30000000000000004."""
_RESOLUTION = 1e-9
"""Values whose range is a smaller part of them are drawn as equal ones."""


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
        f'preserveAspectRatio="none"><style>*{{vector-effect:non-scaling-stroke}}</style>'
        f"{''.join(shapes)}</svg>"
    )


class Scale:
    """Converts steps and values to coordinates in the picture."""

    def __init__(self, drawing: Drawing) -> None:
        points = [point for segment in drawing.segments for point in segment]
        self.ticks = three_ticks(edge for point in points for edge in (point.low, point.high))
        """The values at the bottom, in the middle, and at the top."""
        self.left, self._width = extent(point.x for point in drawing.points)
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


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def draw(drawing: Drawing, alt: str) -> str:
    """The chart with its axes.

    Args:
        drawing: The metric.
        alt: The text alternative of the picture.
    """
    scale = Scale(drawing)
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    image = f'<img src="{source(drawing)}" {size} alt="{text(alt)}" style="{_IMAGE}">'
    picture = element("td", image, f"{_CELL};padding:0", rowspan="3", colspan="3")
    rows: list[str] = []
    for where, words in reversed(list(zip(_ROWS, tick_texts(scale.ticks), strict=True))):
        style = f"{_CELL};padding:0 6px 0 0;text-align:right;vertical-align:{where};height:{HEIGHT / 3:g}px"
        rows.append(element("td", text(words), style, align="right", valign=where) + (picture if not rows else ""))
    below = {"left": _step(scale.left), "center": "step" if drawing.by_step else "report", "right": _step(scale.right)}
    if len({point.x for point in drawing.points}) < 2:
        below = {
            "left": "",
            "center": f"{below['center']} {_step(sum(point.x for point in drawing.points))}",
            "right": "",
        }
    style = f"{_CELL};padding:0;width:{100 // len(below)}%"  # together as wide as the picture
    cells = [element("td", text(words), f"{style};text-align:{side}", align=side) for side, words in below.items()]
    rows.append(element("td", "", _CELL) + "".join(cells))
    lines = "".join(element("tr", row, "background-color:transparent") for row in rows)
    return element("table", lines, "border-collapse:collapse;border:0;margin:2px 0;table-layout:auto;width:100%")


def _step(x: float) -> str:
    return f"{x:g}" if x < 1e5 else f"{x:.0f}"


def three_ticks(values: Iterable[float]) -> tuple[float, float, float]:
    """Round values for the bottom, the middle and the top of a chart that shows all of `values`.

    Args:
        values: Finite values. Equal ones get ticks around them; none get -1, 0 and 1.
    """
    found = list(values)
    low, high = min(found, default=0.0), max(found, default=0.0)
    if high / 2 - low / 2 <= _RESOLUTION * max(abs(low), abs(high)):
        step = _round_up(abs(low) / 4) if low else 1.0
        return _tick(low - step), low, _tick(low + step)
    step = _round_up(high / 2 - low / 2)
    while True:
        for unit in (step, step / 2):  # the latter where values cross zero by little, which would take half the height
            bottom = math.floor(low / unit) * unit
            if bottom + 2 * step >= high - step * 1e-9:
                return _tick(bottom), _tick(bottom + step), _tick(bottom + 2 * step)
        step = _round_up(step * 1.01)


def tick_texts(ticks: Iterable[float]) -> list[str]:
    """The ticks as text, with as many digits as it takes to tell them apart, and the usual four at least."""
    found = list(ticks)
    texts = [value(tick) for tick in found]
    for digits in range(5, _DIGITS + 1):
        if len(set(texts)) == len(found):
            break
        texts = [f"{tick:.{digits}g}" for tick in found]
    return texts


def _round_up(step: float) -> float:
    """The next round number from `step` up."""
    power: float = 10.0 ** math.floor(math.log10(max(step, 1e-300)))
    return next(mantissa * power for mantissa in _ROUND if mantissa * power >= step * (1 - 1e-9))


def _tick(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") + 0.0
