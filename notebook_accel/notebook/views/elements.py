"""HTML elements for drawing a job.

All styles are inline, and there are no scripts, classes or ids, so that the same HTML works in a live notebook, in a
saved notebook that is not trusted, and in a page exported from it. Text inherits its color, in light and dark themes;
where we set the background, we also set the text color, with a contrast of at least 4.5:1. No meaning is conveyed by
color alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from notebook_accel.launch.job.text import shortened

_TEXT_LIMIT = 300
EDGE = "#808080"
BLUE, GREEN, RED, AMBER = "#2f81d0", "#2e8b57", "#b3261e", "#f2b84b"
INK = {RED: "#ffffff", AMBER: "#1a1a1a"}
"""The color of text, by the color of its background."""


def text(words: str, most: int = _TEXT_LIMIT) -> str:
    """Escapes and shortens text from the user."""
    return html.escape(shortened(words, most))


def element(name: str, content: str, style: str = "", **attributes: str) -> str:
    """An element around existing HTML."""
    given = "".join(f' {key}="{html.escape(value)}"' for key, value in {"style": style, **attributes}.items() if value)
    return f"<{name}{given}>{content}</{name}>"


def name(words: str, most: int = _TEXT_LIMIT) -> str:
    """A name that the user chose. Whatever its direction, what follows it is written from left to right."""
    return element("bdi", text(words, most))


def badge(words: str, color: str) -> str:
    """A word that should stand out."""
    style = f"background-color:{color};color:{INK[color]};padding:0 0.4em;border-radius:3px;font-weight:bold"
    return element("span", text(words), style)


def bar(fraction: float | None, color: str = BLUE, height: str = "0.6em") -> str:
    """A progress bar; as much empty space if the fraction is unknown."""
    if fraction is None:
        return element("div", "", f"height:{height};margin:3px 0 2px")
    inner = element("div", "", f"width:{100 * min(1.0, max(0.0, fraction)):.1f}%;height:100%;background-color:{color}")
    style = f"height:{height};border:1px solid {EDGE};border-radius:2px;overflow:hidden;box-sizing:border-box"
    return element("div", inner, f"{style};margin:3px 0 2px")


def table(head: Iterable[tuple[str, str]], rows: Iterable[Iterable[str]], *, wrap: bool) -> str:
    """A table whose columns keep their widths regardless of their contents.

    Args:
        head: The title and the width of each column.
        rows: The cells of each row as HTML, or a single cell that spans all columns.
        wrap: Whether long text wraps; otherwise it is cut off, and no row changes its height.
    """
    head = list(head)
    cell = "text-align:left;vertical-align:top;padding:2px 8px 2px 0;" + (
        "overflow-wrap:anywhere" if wrap else "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
    )
    titles = "".join(element("th", text(title), f"{cell};width:{width}") for title, width in head)
    lines = [element("tr", titles)]
    for row in rows:
        cells = list(row)
        if len(cells) == 1:
            lines.append(element("tr", element("td", cells[0], f"{cell};white-space:normal", colspan=str(len(head)))))
        else:
            lines.append(element("tr", "".join(element("td", each, cell) for each in cells)))
    style = "table-layout:fixed;width:100%;border-collapse:collapse"
    if not wrap:
        style += ";min-width:24em"  # in a narrower table, too much would be cut off
    return element("div", element("table", "".join(lines), style), "overflow:auto;margin:4px 0")
