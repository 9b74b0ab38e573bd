"""Draws a profile: HTML without a script that stays in the notebook, also where that is not trusted.

Text has a contrast of at least 4.5:1 with its background, in light and dark themes.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from notebook_accel.launch.job.profiles.operations import Operation
from notebook_accel.launch.job.profiles.rank_summary import RankSummary
from notebook_accel.launch.job.text import shortened

MOST_RANKS = 32
"""The most ranks that have a row."""
_MOST_CHARACTERS = 100
_PARTS = (
    ("computation", "#f2b84b", "#1a1a1a"),
    ("communication that computation hides", "#9cc3e6", "#1a1a1a"),
    ("communication that nothing hides", "#b3261e", "#ffffff"),
    ("gaps", "#cccccc", "#1a1a1a"),
)
_CELL = "padding:1px 10px 1px 0;text-align:left;vertical-align:top"
_NUMBER = "padding:1px 10px 1px 0;text-align:right;vertical-align:top;white-space:nowrap"


def shares(summary: RankSummary) -> str:
    """`60% computation, 30% communication (a third of it hidden), 20% gaps`, as shares of the steps."""
    total = summary.seconds or 1.0
    parts = [f"{summary.compute / total:.0%} computation"]
    if summary.communication:
        hidden = f"{summary.hidden / summary.communication:.0%} of it hidden by computation"
        parts.append(f"{summary.communication / total:.0%} communication ({hidden})")
    return ", ".join([*parts, f"{summary.gaps / total:.0%} gaps"])


def difference(operation: Operation) -> str:
    """`4.1 ms on rank 0, 12.0 ms on rank 3`: where an operation is shortest and longest."""
    least = min(operation.by_rank, key=operation.by_rank.__getitem__)
    most = max(operation.by_rank, key=operation.by_rank.__getitem__)
    return ", ".join(f"{1e3 * operation.by_rank[rank]:.2f} ms on rank {rank}" for rank in (least, most))


def draw(head: str, notes: list[str], ranks: Mapping[int, RankSummary], operations: Sequence[Operation]) -> str:
    """The whole output.

    Args:
        head: What was profiled.
        notes: Further lines of text.
        ranks: What the steps of each rank spent their time on.
        operations: Those that took most.
    """
    shown = list(ranks.items())[:MOST_RANKS]
    longest = max(summary.step for summary in ranks.values()) or 1.0
    rows = "".join(_rank(rank, summary, longest) for rank, summary in shown)
    left = f"<div>{len(ranks) - MOST_RANKS} more ranks are in .ranks</div>" if len(ranks) > MOST_RANKS else ""
    lines = "".join(f"<div>{html.escape(note)}</div>" for note in notes)
    saving = "<div><code>save(folder)</code> writes the traces, by rank and all in one, for Perfetto.</div>"
    table = f'<table style="border-collapse:collapse">{rows}</table>'
    return (
        f'<div style="line-height:1.4"><div><b>{html.escape(head)}</b></div>{lines}{_legend()}'
        f"{table}{left}{_operations(operations)}{saving}</div>"
    )


def _legend() -> str:
    marks = "".join(
        f'<span style="background-color:{color};color:{ink};padding:0 0.5em;margin-right:0.5em;border-radius:3px">'
        f"{name}</span>"
        for name, color, ink in _PARTS
    )
    return f'<div style="font-size:85%;margin:4px 0">{marks}</div>'


def _rank(rank: int, summary: RankSummary, longest: float) -> str:
    exposed = summary.communication - summary.hidden
    times = (summary.compute - summary.hidden, summary.hidden, exposed, summary.gaps)
    total = sum(times) or 1.0
    bars = "".join(
        f'<div title="{html.escape(f"{name}: {1e3 * seconds / summary.steps:.2f} ms a step")}" '
        f'style="width:{100 * seconds / total:.2f}%;background-color:{color}"></div>'
        for seconds, (name, color, _) in zip(times, _PARTS, strict=True)
    )
    bar = f'<div style="display:flex;height:14px;width:{240 * summary.step / longest:.0f}px">{bars}</div>'
    gaps = "".join(
        f"<div>{1e3 * gap.seconds:.1f} ms {html.escape(_short(gap.what))}</div>" for gap in summary.longest_gaps
    )
    details = f"<details><summary>longest gaps</summary>{gaps}</details>" if gaps else ""
    return (
        f'<tr><td style="{_CELL};white-space:nowrap">rank {rank}</td><td style="{_CELL}">{bar}</td>'
        f'<td style="{_NUMBER}">{1e3 * summary.step:.1f} ms a step</td>'
        f'<td style="{_CELL}">{shares(summary)}{details}</td></tr>'
    )


def _operations(operations: Sequence[Operation]) -> str:
    names = ("operation", "ms a step", "share", "calls a step", "where ranks differ")
    head = "".join(f'<th style="{_CELL if name in (names[0], names[-1]) else _NUMBER}">{name}</th>' for name in names)
    rows = "".join(
        f'<tr><td style="{_CELL}"><code>{html.escape(_short(each.name))}</code></td>'
        f'<td style="{_NUMBER}">{1e3 * each.seconds:.2f}</td><td style="{_NUMBER}">{each.share:.0%}</td>'
        f'<td style="{_NUMBER}">{each.calls:.1f}</td>'
        f'<td style="{_CELL}">{difference(each) if each.differs else ""}</td></tr>'
        for each in operations
    )
    return f'<table style="border-collapse:collapse;margin:6px 0"><tr>{head}</tr>{rows}</table>' if operations else ""


def _short(text: str) -> str:
    return shortened(text, _MOST_CHARACTERS)
