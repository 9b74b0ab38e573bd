"""What the pictures of a job have in common: HTML with inline styles, for saved notebooks and for pages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_CELL = {
    is_number: f"padding:1px 12px 1px 0;vertical-align:top;text-align:{align}"
    for is_number, align in ((False, "left"), (True, "right;white-space:nowrap"))
}

Kind = tuple[str, str, str]
"""A kind of bar or box: its name, its color, and the color of text on it."""


def page(title: str, picture: str) -> str:
    """A picture as a page of its own."""
    return f"<!DOCTYPE html><meta charset='utf-8'><title>{title}</title>{picture}"


def picture(head: str, notes: Iterable[str], *parts: str) -> str:
    """A picture: a line in bold, further lines of text, and what is drawn."""
    lines = [f"<b>{html.escape(head)}</b>", *map(html.escape, notes)]
    return div("".join([*map(div, lines), *parts]), "line-height:1.4")


def div(content: str, style: str = "") -> str:
    """A block around existing HTML."""
    return f'<div style="{style}">{content}</div>' if style else f"<div>{content}</div>"


def legend(kinds: Iterable[Kind], words: str = "") -> str:
    """What the colors mean."""
    marks = "".join(
        f'<span style="background-color:{color};color:{ink};padding:0 0.5em;margin-right:0.5em;border-radius:3px">'
        f"{name}</span>"
        for name, color, ink in kinds
    )
    return div(f"{marks}<span>{words}</span>" if words else marks, "font-size:85%;margin:4px 0")


def bar(parts: Sequence[tuple[float, str, str]], width: float) -> str:
    """A bar of so many pixels.

    Args:
        parts: The length of each part in any unit, its color, and what it says when it is pointed at.
        width: The pixels of all parts together.
    """
    whole = sum(length for length, _, _ in parts) or 1.0
    drawn = "".join(
        f'<div title="{html.escape(title)}" style="width:{100 * length / whole:.2f}%;background-color:{color}"></div>'
        for length, color, title in parts
    )
    return div(drawn, f"display:flex;height:14px;width:{width:.0f}px")


def table(rows: Iterable[Sequence[str]], head: Sequence[str] = (), numbers: Sequence[int] = ()) -> str:
    """A table.

    Args:
        rows: The cells of each row, as HTML.
        head: The titles of the columns, as text.
        numbers: The columns whose cells are at the right.
    """

    def line(tag: str, cells: Iterable[str]) -> str:
        drawn = "".join(f'<{tag} style="{_CELL[n in numbers]}">{cell}</{tag}>' for n, cell in enumerate(cells))
        return f"<tr>{drawn}</tr>"

    lines = [line("th", map(html.escape, head))] if head else []
    lines += [line("td", row) for row in rows]
    return f'<table style="border-collapse:collapse;margin:6px 0">{"".join(lines)}</table>'
