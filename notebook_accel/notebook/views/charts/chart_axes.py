"""Puts a chart's axes around its picture: the values at its grid lines, and its first and last step.

The numbers are HTML, so they have the page's text color in light and dark themes. They are in a table whose alignment
is also written as attributes, so they keep their places in front ends that remove styles.
"""

from __future__ import annotations

from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.notebook.views.charts.static_chart import HEIGHT, WIDTH, Scale, source
from notebook_accel.notebook.views.charts.ticks import tick_texts
from notebook_accel.notebook.views.elements import element, text

_CELL = "border:0;background-color:transparent;white-space:nowrap;font-size:11px;line-height:16px"
_IMAGE = f"display:block;margin:0;width:100%;max-width:{WIDTH}px;height:{HEIGHT}px"
_ROWS = ("bottom", "middle", "top")


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
    style = f"{_CELL};padding:0;width:{WIDTH / len(below):g}px"  # together as wide as the picture
    cells = [element("td", text(words), f"{style};text-align:{side}", align=side) for side, words in below.items()]
    rows.append(element("td", "", _CELL) + "".join(cells))
    lines = "".join(element("tr", row, "background-color:transparent") for row in rows)
    return element("table", lines, "border-collapse:collapse;border:0;margin:2px 0;table-layout:auto;max-width:100%")


def _step(x: float) -> str:
    return f"{x:g}" if x < 1e5 else f"{x:.0f}"
