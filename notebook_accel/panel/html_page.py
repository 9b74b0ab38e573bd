"""Draws a job as HTML: its progress, ranks and metrics while it runs, and its final state once it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from notebook_accel.events import Phase
from notebook_accel.insight.pictures import (
    AMBER,
    BLUE,
    DEEP_BLUE,
    DEEP_GREEN,
    DEEP_GREY,
    EDGE,
    GREEN,
    RED,
    badge,
    div,
    element,
    lab_button,
    name,
    progress_bar,
    text,
    wide_table,
)
from notebook_accel.launch.job import describe, location, progress, resources
from notebook_accel.launch.job.headline import headline, rank_line
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.launch.job.metric_text import metric_spark, metric_text
from notebook_accel.launch.job.progress import Overview
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import percent, value
from notebook_accel.panel import static_chart
from notebook_accel.rank_spans import named

_METRIC_COLUMNS = 4
"""The most metrics with a column in the table of ranks."""
_SPARK_WIDTH = 24
_CHART_POINTS = 110
_MOST_METRICS = 12
_MOST_FAILED = 4
_MOST_STACKS, _LONGEST_STACK = 8, 4000
_ONE_LINE = "white-space:nowrap;overflow:hidden;text-overflow:ellipsis"
_COLORS = {Phase.FAILED: RED, Phase.DONE: GREEN, Phase.STOPPED: DEEP_GREY}
_STATES = {
    "running": DEEP_BLUE,
    "saving": DEEP_BLUE,
    "done": DEEP_GREEN,
    "stalled": AMBER,
    "paused": AMBER,
    "failing": RED,
    "failed": RED,
}
"""The color of the badge of a state; others are gray."""


def bundle(job: Job, *, fallback: bool = False) -> dict[str, str]:
    """The current output for a job as HTML, and as text for front ends that show no HTML; see `draw`."""
    # Drawing metrics twice would double the cost, and hardly anyone sees the text while a job runs.
    return {"text/html": draw(job, fallback=fallback), "text/plain": describe.describe(job, metrics=job.status.ended)}


def draw(job: Job, *, fallback: bool = False) -> str:
    """Returns the whole output. With `fallback`, it accompanies a widget, for front ends that do not draw the widget.

    If there are too many ranks for rows, a fallback shows only the failed ones and no grid, because a grid is long and
    the front end has to sanitize all of the HTML. A fallback is rarely redrawn, and stays in the notebook if the kernel
    ends before the job, so it shows the time when it was drawn.
    """
    found = progress.overview(job)
    parts = [_head(job, found, fallback and not job.status.ended), _choices(job), _resume(job)]
    if not progress.is_brief(job):
        # Metrics appear once they are reported: while the job runs, they are after the ranks, which keep their place.
        ranks, metrics = _ranks(job, found, not fallback), _metrics(job)
        parts += [_total(job, found), _stall(job), _warnings(job)]
        parts += [metrics, ranks] if job.status.ended else [ranks, metrics]
        parts += [_stacks(job)]
    # JupyterLab shows the first line of the HTML in place of outputs that are collapsed.
    summary = f"{job.title} {job.status.value}" if job.status.ended else job.title
    return f"<!-- {text(summary)} -->\n" + div("".join(parts), "max-width:80em;line-height:1.4")


def _head(job: Job, found: Overview, dated: bool) -> str:
    """How the job is, in a line, and the smaller facts below it."""
    words = headline(job, found)
    parts = [
        element("b", text(job.title)),
        badge(words.status, _STATES.get(words.status, DEEP_GREY)),
        element("b", words.done, "font-size:150%") if words.done else "",
        text(words.place),
        "" if job.status is Status.STARTING else words.seconds,
        "" if dated else words.left,
    ]
    if dated:
        parts.insert(2, time.strftime("on %Y-%m-%d at %H:%M:%S"))
    # Without the node's name, since notebooks are shared. If there are several, the ranks name them.
    below = [f"on {words.ranks}", text(job.hardware), words.attempt, words.slowest]
    line = "" if job.status.ended else _ONE_LINE
    return div("&ensp;".join(filter(None, parts)), line) + div(
        " · ".join(filter(None, below)), f"font-size:90%{line and ';' + line}"
    )


def _choices(job: Job) -> str:
    """The choices that were made for the user, and how the job was restarted."""
    return "".join(div(text(line), "font-size:90%") for line in describe.notices(job))


def resume_label(job: Job) -> str:
    """What a button says that continues the training; empty if that can't be done."""
    return f"Resume {job.title}" if job.resumable else ""


def _resume(job: Job) -> str:
    """A button that continues the training."""
    label = resume_label(job)
    return lab_button("na-lab-resume", "notebook-accel:resume", label, job.id) if label else ""


def _total(job: Job, found: Overview) -> str:
    """The job's progress bar. It has its place from the start, so that nothing moves when there is one."""
    return "" if job.status.ended else progress_bar(found.done)


def _stall(job: Job) -> str:
    """Which ranks wait for which, if the job has stalled; until then an empty line, so that nothing moves later."""
    words = location.explain(job)
    if words:
        line = f"{badge('stalled', AMBER)} {element('span', text(words), title=words)}"
    elif len(job.ranks) > 1 and not job.status.ended:
        line = "&nbsp;"
    else:
        return ""
    return div(line, "" if job.status.ended else _ONE_LINE)


def _warnings(job: Job) -> str:
    """What is wrong with the GPUs of ranks."""
    found = resources.warnings(job)[:_MOST_FAILED]
    return "".join(div(f"{badge('warning', AMBER)} {text(words)}") for words in found)


def _metrics(job: Job) -> str:
    """The metrics: drawn with characters while the job runs, since pictures would flicker, and as charts at the end."""
    live = not job.status.ended
    names = progress.metric_names(job)
    drawings = [progress.metric(job, name, _SPARK_WIDTH if live else _CHART_POINTS) for name in names]
    courses = [each for each in drawings if live or not _is_single(each)]
    drawn = [_spark(each) if live else _chart(each) for each in courses[:_MOST_METRICS]]
    if drawn and not live:
        drawn = [div("".join(drawn), "display:flex;flex-wrap:wrap")]
    left_out = progress.left_out([each.name for each in courses], _MOST_METRICS)
    if left_out:
        drawn.append(div(left_out))
    drawn += [_value(each) for each in drawings if each not in courses]
    return div("".join(drawn), "margin:6px 0") if drawn else ""


def _is_single(drawing: Drawing) -> bool:
    """Whether it has the values of one step, such as a time that is reported at the end: its chart would be a dot."""
    return drawing.first is not None and drawing.last is not None and drawing.first.first == drawing.last.last


def _value(drawing: Drawing) -> str:
    found = metric_text(drawing)
    facts = [*([found.range] if found.range else []), found.facts[0].removeprefix("last ")]
    if drawing.nan + drawing.infinite:
        facts.append(found.facts[-1])
    now, rest = element("b", text(found.now)), element("span", text(", ".join(facts)), "font-size:90%")
    return div(f"{name(drawing.name)} {now} {rest}", _ONE_LINE, title=f"{drawing.name}: {found.line}")


def _spark(drawing: Drawing) -> str:
    line = element("span", metric_spark(drawing), "font-family:monospace;white-space:pre")
    words = metric_text(drawing).line
    return div(f"{name(drawing.name)} {line} {text(words)}", _ONE_LINE, title=words)


def _chart(drawing: Drawing) -> str:
    found = metric_text(drawing)
    drawn = div(name(drawing.name), "overflow-wrap:anywhere", title=drawing.name)
    brief = element("span", text(found.brief), "font-size:85%")
    drawn += div(f"{element('b', text(found.now), 'font-size:150%')}&ensp;{brief}", title=found.line)
    drawn += static_chart.draw(drawing, f"{drawing.name}: {found.line}")
    return div(drawn, _CHART_STYLE)


_CHART_STYLE = (
    "display:inline-block;vertical-align:top;box-sizing:border-box;margin:0 8px 8px 0;padding:4px 8px;"
    f"border:1px solid {EDGE};border-radius:5px;width:{static_chart.WIDTH + 74}px;max-width:100%;flex-grow:1"
)
"""Beside the picture is room for numbers of ten characters. Each line of charts fills the width of the cell."""


def _ranks(job: Job, found: Overview, grid: bool) -> str:
    ordered, wrap = progress.failed_first(job), job.status.ended
    if len(ordered) < progress.COMPACT_FROM:
        return _table(job, ordered, found, wrap=wrap)
    failed = [state for state in ordered[:_MOST_FAILED] if state.phase is Phase.FAILED]
    drawn = _table(job, failed, found, wrap=wrap) if failed else ""
    if not grid:
        return drawn
    for host, states in progress.by_host(job, job.ranks):
        drawn += element("b", text(host)) if host else ""
        drawn += div("".join(_box(state, found) for state in states), "margin:4px 0")
    if job.status.ended:  # while it runs, each redraw would collapse an expanded element again
        whole = _table(job, ordered, found, wrap=True)
        drawn += element("details", element("summary", f"All {len(ordered)} ranks") + whole)
    return drawn


def _table(job: Job, states: list[RankState], found: Overview, *, wrap: bool) -> str:
    columns = _columns(states, wrap=wrap)
    rows: list[list[str]] = []
    for host, there in progress.by_host(job, states):
        rows += [[element("b", text(host))]] if host else []
        for state in there:
            rows.append([cell(state, found) for _, _, cell in columns])
            reason = progress.why_failed(state)
            if reason:
                is_cause = state.failed is None or not state.failed.from_peer
                word = badge("error", RED) if is_cause else badge("consequence", DEEP_GREY)
                rows.append([f"{word} {element('span', text(reason), 'font-family:monospace')}"])
    head = [(title, width) for title, width, _ in columns]
    if "auto" not in dict(head).values():  # one column must take the remaining width
        head[-1] = (head[-1][0], "auto")
    return wide_table(head, rows, wrap=wrap)


def _columns(states: list[RankState], *, wrap: bool) -> list[tuple[str, str, Callable[[RankState, Overview], str]]]:
    """The title, the width, and the cells of each column; in a table that stays, without those that are empty."""
    names = list(dict.fromkeys(key for state in states for key in state.metrics))[:_METRIC_COLUMNS]
    columns: list[tuple[str, str, Callable[[RankState, Overview], str]]] = [("Rank", "5.5em", _number)]
    if not wrap or any(state.bars or state.detail for state in states):
        columns += [("Progress", "auto", _progress)]
    titles = [element("span", name(each), _part(each)) for each in names]
    if not wrap or any(describe.load(state) for state in states):
        titles.append(element("span", "Usage", _part("Usage")))
    if titles:
        columns.append(("".join(titles), f"{min(30 + 8 * len(names), 52)}%", partial(_parts, names)))
    return columns


def _part(title: str) -> str:
    """The style of a metric and of its title: a column where there is room, and below the one before otherwise."""
    width = f"{max(6.5, min(0.65 * len(title) + 1, 13)):.3g}em"
    return (
        f"display:inline-block;width:{width};max-width:100%;padding:0 8px 0 0;box-sizing:border-box;vertical-align:top"
    )


def _number(state: RankState, _: Overview) -> str:
    phase = badge(state.phase.value, RED) if state.phase is Phase.FAILED else text(state.phase.value)
    return f"{element('b', str(state.rank))} {phase}"


def _parts(names: list[str], state: RankState, _: Overview) -> str:
    words = describe.load(state)
    values = "".join(element("span", _value_of(each, state) or "&nbsp;", _part(each), title=each) for each in names)
    return values + element("span", text(words), "font-size:90%", title=words)


def _value_of(key: str, state: RankState) -> str:
    return value(state.metrics[key]) if key in state.metrics else ""


def _progress(state: RankState, found: Overview) -> str:
    """A bar with a text below it. Both always have their place, so that the row keeps its height."""
    line = rank_line(state, waits=found.waits)
    parts = (
        "" if line.done is None else percent(line.done),
        line.left and f"{line.left} left",
        line.text,
        state.doing,
    )
    words = " · ".join(part for part in parts if part)
    mark = found.mark(state)
    mark = f"{badge(mark, AMBER)} " if mark else ""
    drawn = progress_bar(line.done, _COLORS.get(state.phase, BLUE))
    return drawn + div(f"{mark}{text(words)}&nbsp;", "overflow:hidden;text-overflow:ellipsis", title=words)


def _box(state: RankState, found: Overview) -> str:
    """A rank in the grid."""
    fraction = found.fractions.get(state.rank)
    mark = found.mark(state)
    label = str(state.rank)
    amount = percent(fraction) if fraction is not None else state.phase.value
    if state.phase is Phase.FAILED:
        label, amount = badge(f"{label} failed", RED), ""
    elif mark:
        label = badge(label, AMBER)
    else:
        label = element("b", label)
    title = f"rank {state.rank}: {state.phase.value}, {progress.progress(state).text or 'no bar'}"
    drawn = div(f"{label} {amount}", _ONE_LINE)
    drawn += progress_bar(fraction, _COLORS.get(state.phase, BLUE), "0.4em")
    style = "display:inline-block;vertical-align:top;width:6.5em;margin:0 6px 4px 0;overflow:hidden"
    return div(drawn, style, title=title + (f", {mark}" if mark else ""))


def _stacks(job: Job) -> str:
    """The stacks of stalled ranks. They are below everything else, so that nothing moves when they come or go."""
    found = location.stalled_stacks(job)
    drawn = ""
    for ranks, stack in found[:_MOST_STACKS]:
        drawn += div(element("b", named(ranks)), "margin:4px 0 0")
        drawn += div(text(stack, _LONGEST_STACK), "font-family:monospace;white-space:pre;overflow:auto")
    if len(found) > _MOST_STACKS:
        drawn += div(f"and {len(found) - _MOST_STACKS} others", "margin:4px 0 0")
    if drawn and job.status.ended:
        return element("details", element("summary", "Python stacks during the stall") + drawn)
    return drawn
