"""The HTML that jobs are drawn with: text, tables, bars and legends, for views, flame graphs, profiles and comparisons.

All styles are inline, and there are no scripts, classes or ids, so that the same HTML works in a live notebook, in a
saved notebook that is not trusted, and in a page exported from it. Text inherits its color, in light and dark themes;
where we set the background, we also set the text color, with a contrast of at least 4.5:1. No meaning is conveyed by
color alone.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Sequence

from notebook_accel.launch.job.text import shortened

_TEXT_LIMIT = 300
EDGE = "#808080"
BLUE, GREEN, RED, AMBER = "#2f81d0", "#2e8b57", "#b3261e", "#f2b84b"
DEEP_BLUE, DEEP_GREEN, DEEP_GREY = "#1f66a8", "#1f7344", "#5c6166"
INK = {AMBER: "#1a1a1a"} | dict.fromkeys((RED, DEEP_BLUE, DEEP_GREEN, DEEP_GREY), "#ffffff")
"""The color of text, by the color of its background."""
_CELL = {
    is_number: f"padding:1px 12px 1px 0;vertical-align:top;text-align:{align}"
    for is_number, align in ((False, "left"), (True, "right;white-space:nowrap"))
}

Kind = tuple[str, str, str]
"""A kind of bar or box: its name, its color, and the color of text on it."""


def text(words: str, most: int = _TEXT_LIMIT) -> str:
    """Escapes and shortens text from the user."""
    return html.escape(shortened(words, most))


def element(name: str, content: str, style: str = "", **attributes: str) -> str:
    """An element around existing HTML."""
    given = "".join(f' {key}="{html.escape(value)}"' for key, value in {"style": style, **attributes}.items() if value)
    return f"<{name}{given}>{content}</{name}>"


def div(content: str, style: str = "", **attributes: str) -> str:
    """A block around existing HTML."""
    return element("div", content, style, **attributes)


def page(title: str, picture: str) -> str:
    """A picture as a page of its own."""
    return f"<!DOCTYPE html><meta charset='utf-8'><title>{title}</title>{picture}"


def picture(head: str, notes: Iterable[str], *parts: str) -> str:
    """A picture: a line in bold, further lines of text, and what is drawn."""
    lines = [element("b", html.escape(head)), *map(html.escape, notes)]
    return div("".join([*map(div, lines), *parts]), "line-height:1.4")


def name(words: str, most: int = _TEXT_LIMIT) -> str:
    """A name that the user chose. Whatever its direction, what follows it is written from left to right."""
    return element("bdi", text(words, most))


def badge(words: str, color: str) -> str:
    """A word that should stand out."""
    style = f"background-color:{color};color:{INK[color]};padding:0 0.4em;border-radius:3px;font-weight:bold"
    return element("span", text(words), style)


def legend(kinds: Iterable[Kind], words: str = "") -> str:
    """What the colors mean."""
    style = "padding:0 0.5em;margin-right:0.5em;border-radius:3px"
    marks = [element("span", kind, f"background-color:{color};color:{ink};{style}") for kind, color, ink in kinds]
    return div("".join([*marks, element("span", words) if words else ""]), "font-size:85%;margin:4px 0")


def bar(parts: Sequence[tuple[float, str, str]], width: float) -> str:
    """A bar of so many pixels.

    Args:
        parts: The length of each part in any unit, its color, and what it says when it is pointed at.
        width: The pixels of all parts together.
    """
    whole = sum(length for length, _, _ in parts) or 1.0
    shares = [(length / whole, color, title) for length, color, title in parts]
    return _bar(shares, f"display:flex;height:14px;width:{width:.0f}px")


def progress_bar(fraction: float | None, color: str = BLUE, height: str = "0.6em") -> str:
    """A bar over the whole width; as much empty space if the fraction is unknown."""
    if fraction is None:
        return _bar((), f"height:{height};margin:3px 0 2px")
    style = f"height:{height};border:1px solid {EDGE};border-radius:2px;overflow:hidden;box-sizing:border-box"
    return _bar([(min(1.0, max(0.0, fraction)), color, "")], f"{style};margin:3px 0 2px")


def _bar(shares: Iterable[tuple[float, str, str]], style: str) -> str:
    """A bar of parts, whose lengths are fractions of the whole."""
    return div(
        "".join(
            div("", f"width:{100 * length:.1f}%;height:100%;background-color:{color}", title=title)
            for length, color, title in shares
        ),
        style,
    )


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), numbers: Sequence[int] = ()) -> str:
    """A table that is as wide as its contents.

    Args:
        rows: The cells of each row, as HTML.
        head: The titles of the columns, as text.
        numbers: The columns whose cells are at the right.
    """
    lines = [_row("th", map(html.escape, head), lambda column: _CELL[column in numbers])] if head else []
    lines += [_row("td", row, lambda column: _CELL[column in numbers]) for row in rows]
    return element("table", "".join(lines), "border-collapse:collapse;margin:6px 0")


def lab_button(kind: str, command: str, label: str, job: str) -> str:
    """A button for a job, which only the extension of JupyterLab makes visible, and understands.

    It has no text, which some front ends would show without the button.

    Args:
        kind: The class by which `extension/lab/style/index.css` shows it, with its text.
        command: One of `extension/lab/src/commands.ts`.
        label: What it does, for screen readers.
        job: The ID of the job.
    """
    attributes = {
        "class": f"na-lab-command {kind}",
        "type": "button",
        "aria-label": label,
        "data-commandlinker-command": command,
        "data-commandlinker-args": json.dumps({"job": job}),
    }
    return element("button", "", "display:none", **attributes)


def wide_table(head: Iterable[tuple[str, str]], rows: Iterable[Iterable[str]], *, wrap: bool) -> str:
    """A table over the whole width, whose columns keep their widths regardless of their contents.

    Args:
        head: The title of each column as HTML, and its width.
        rows: The cells of each row as HTML, or a single cell that spans all columns.
        wrap: Whether long text wraps; otherwise it is cut off, and no row changes its height.
    """
    titles, widths = zip(*head, strict=True)
    cell = "text-align:left;vertical-align:top;padding:2px 8px 2px 0;" + (
        "overflow-wrap:anywhere" if wrap else "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
    )
    lines = [_row("th", titles, lambda column: f"{cell};width:{widths[column]}")]
    for row in rows:
        cells = list(row)
        if len(cells) == 1:
            whole = element("td", cells[0], f"{cell};white-space:normal", colspan=str(len(titles)))
            lines.append(element("tr", whole))
        else:
            lines.append(_row("td", cells, lambda column: cell))
    style = "table-layout:fixed;width:100%;border-collapse:collapse"
    if not wrap:
        style += ";min-width:24em"  # in a narrower table, too much would be cut off
    return div(element("table", "".join(lines), style), "overflow:auto;margin:4px 0")


def _row(tag: str, cells: Iterable[str], style_of: Callable[[int], str]) -> str:
    """A row of cells, given the style of each column by its index."""
    return element("tr", "".join(element(tag, cell, style_of(column)) for column, cell in enumerate(cells)))
