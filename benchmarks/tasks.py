"""What kept a page busy: the longest task of its main thread, and what that was spent on, from the browser's own trace.

A task takes long because there is much to do, or because the processor does something else meanwhile. The trace tells
how long each lasted and how long it computed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

_CATEGORIES = ["toplevel", "devtools.timeline", "blink.user_timing"]
_TASK = "ThreadControllerImpl::RunTask"
_GARBAGE = ("MajorGC", "MinorGC")
_DRAWING = ("UpdateLayoutTree", "Layout", "PrePaint", "Paint", "Layerize")
_BEGIN = "the tasks begin"


@dataclass(frozen=True)
class Task:
    """A task of the page's main thread; all in milliseconds."""

    lasted: float
    computed: float
    """Of that, by the processor."""
    script: float
    """Of that, by scripts from a blob, as those of widgets are."""
    drawing: float
    """Of that, for styles, layout and painting."""
    garbage: float
    """Of that, to find memory that is no longer used, of all scripts of the page."""

    def row(self) -> list[str]:
        numbers = (self.lasted, self.computed, self.script, self.drawing, self.garbage)
        return [f"{number:.0f}" for number in numbers]


HEAD = ["lasted ms", "computed ms", "the panel's script", "layout and paint", "garbage"]


@contextmanager
def traced(tab: Page) -> Iterator[list[Task]]:
    """Fills the list, once the block is left, with what the page has done in it, the longest task first."""
    browser = tab.context.browser
    assert browser is not None
    session = browser.new_browser_cdp_session()
    events: list[dict[str, Any]] = []
    ended: list[object] = []
    session.on("Tracing.dataCollected", lambda event: events.extend(event["value"]))
    session.on("Tracing.tracingComplete", lambda event: ended.append(event))
    config = {"includedCategories": _CATEGORIES}
    session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": config})
    tab.evaluate("name => { performance.mark(name); }", _BEGIN)
    found: list[Task] = []
    yield found
    session.send("Tracing.end")
    while not ended:
        tab.wait_for_timeout(20)
    session.detach()
    found += tasks(events)


def tasks(events: list[dict[str, Any]]) -> list[Task]:
    """The tasks of the thread that has marked the beginning, from the events of a trace."""
    began = next(event for event in events if event["name"] == _BEGIN)
    place = operator.itemgetter("pid", "tid")
    parts = [event for event in events if event.get("ph") == "X" and place(event) == place(began)]
    parts = sorted((part for part in parts if part["ts"] >= began["ts"]), key=operator.itemgetter("ts"))
    found, at = [], 0
    for whole in (part for part in parts if part["name"] == _TASK):
        while at < len(parts) and parts[at]["ts"] < whole["ts"]:
            at += 1
        end = whole["ts"] + whole["dur"]
        within = []
        while at < len(parts) and parts[at]["ts"] <= end:
            within.append(parts[at])
            at += 1
        found.append(_task(whole, within))
    return sorted(found, key=lambda task: task.lasted, reverse=True)


def _task(whole: dict[str, Any], parts: list[dict[str, Any]]) -> Task:
    return Task(
        lasted=whole["dur"] / 1000,
        computed=whole.get("tdur", 0) / 1000,
        script=_sum(part for part in parts if part["name"] == "FunctionCall" and _is_of_panel(part)),
        drawing=_sum(part for part in parts if part["name"] in _DRAWING),
        garbage=_sum(part for part in parts if part["name"] in _GARBAGE),
    )


def _is_of_panel(call: dict[str, Any]) -> bool:
    return str(call.get("args", {}).get("data", {}).get("url", "")).startswith("blob:")


def _sum(parts: Iterator[dict[str, Any]]) -> float:
    """What parts that follow one another have computed; one within another is part of it already."""
    total, end = 0.0, 0.0
    for part in parts:
        if part["ts"] >= end:
            total += part.get("tdur", 0) / 1000
            end = part["ts"] + part["dur"]
    return total
