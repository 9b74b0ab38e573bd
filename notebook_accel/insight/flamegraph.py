"""Flame graphs: where the ranks of a running job spend their time, as `job.flamegraph()` returns it.

The picture is HTML that stays in the notebook. All styles are inline, so that it also shows in a saved notebook that
is not trusted, and in a page exported from it. A script of a few lines enlarges a call when it is clicked; where
scripts do not run, everything else is the same. The outermost call is at the top. Text has a contrast of at least 4.5:1
with its background, in light and dark themes.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Frame, Sampled, SamplesRequested
from notebook_accel.insight import pictures
from notebook_accel.launch.job import requests
from notebook_accel.launch.job.requests import JobHandle
from notebook_accel.launch.job.text import shortened
from notebook_accel.launch.system import installed
from notebook_accel.launch.wire import cell_names, stack_frames
from notebook_accel.rank_spans import named

_LONGEST = 600.0
_HIGHEST_RATE = 1000.0
_CAUSE = "its ranks can't be sampled: call job.flamegraph()"
_LEAST_SHARE = 0.05
"""The share of the time below which a call is not in the text."""
_MOST_LINES = 40
_LEAST = 0.003
"""The share of the whole below which a call is not drawn."""
_MOST_DEPTH = 80
MOST_RANKS = 8
"""The most ranks that have their own picture."""
_MOST_CHARACTERS = 200
_COLLECTIVE = ("collective operation", "#b3261e", "#ffffff")
_USERS = ("your code", "#f2b84b", "#1a1a1a")
_TORCH = ("torch", "#9cc3e6", "#1a1a1a")
_OTHER = ("other libraries", "#cccccc", "#1a1a1a")
_SCRIPT = """
(root => {
  if (!root) return;
  const boxes = [...root.querySelectorAll("[title]")];
  let shown = null;
  const zoom = box => {
    boxes.forEach(each => { each.parentNode.style.width = each.dataset.width; each.parentNode.style.display = ""; });
    shown = box === shown ? null : box;
    for (let call = shown && box.parentNode; call && root.contains(call) && call.firstElementChild.title;
         call = call.parentNode.parentNode) {
      for (const other of call.parentNode.children) other.style.display = other === call ? "" : "none";
      call.style.width = "100%";
    }
  };
  boxes.forEach(box => {
    box.dataset.width = box.parentNode.style.width;
    box.style.cursor = "pointer";
    box.tabIndex = 0;
    box.setAttribute("role", "button");
    box.onclick = () => zoom(box);
    box.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); zoom(box); } };
  });
})(document.currentScript && document.currentScript.previousElementSibling);
"""
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def sample(job: JobHandle, seconds: float, rank: int | None, rate: float) -> Flamegraph:
    """Implements `Job.flamegraph`."""
    seconds = requests.checked_number("seconds", seconds, above=0, most=_LONGEST)
    rate = requests.checked_number("rate", rate, above=0, most=_HIGHEST_RATE, what="a number of samples per second")
    found = requests.replies(job, SamplesRequested(0, seconds, rate), seconds, rank, _CAUSE)
    samples = {each: event for each, event in found.by_rank.items() if isinstance(event, Sampled)}
    if not samples:
        raise TimeoutError(
            f"no rank of {job.title} has reported samples: they may still be starting, or C code may hold the GIL. "
            "Try again, or look at job.stacks()"
        )
    return Flamegraph(job.title, samples, found.missing)


class Flamegraph:
    """Where the ranks' Python code spent its time while they were sampled.

    A notebook shows it as a picture, which stays in the saved notebook. `print` shows the calls that took most.

    Args:
        title: The name of what the ranks run.
        samples: What each rank reported, by its global rank.
        missing: The ranks that reported nothing.
    """

    def __init__(self, title: str, samples: Mapping[int, Sampled], missing: list[int]) -> None:
        self.samples = dict(sorted(samples.items()))
        """What each rank reported, by its global rank."""
        self._title = title
        self._missing = missing

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a file, and returns its path.

        Args:
            path: Its name. With `.json` at the end, such as `train.speedscope.json`, the file opens in
                https://www.speedscope.app and in editors that read its format; with `.html`, it is the picture.

        Raises:
            ConfigurationError: The name ends with neither.
        """
        path = Path(path)
        if path.suffix == ".json":
            text = json.dumps(speedscope_document(self._title, self._trees()))
        elif path.suffix == ".html":
            text = pictures.page("Flame graph", self._repr_html_())
        else:
            raise ConfigurationError(
                f"a flame graph can't be saved as {path.name!r}: end the name with .json for speedscope, or with .html"
            )
        path.write_text(text, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return draw(self._head(), self._notes(), self._trees(), self._merged())

    def __repr__(self) -> str:
        return "\n".join([self._head(), *self._notes(), *_lines(self._merged())])

    def _trees(self) -> dict[str, Call]:
        return {f"rank {rank}": call_tree([sampled]) for rank, sampled in self.samples.items()}

    def _merged(self) -> Call:
        return call_tree(self.samples.values())

    def _head(self) -> str:
        seconds = max((sampled.seconds for sampled in self.samples.values()), default=0.0)
        count = sum(sampled.samples for sampled in self.samples.values())
        return f"{self._title} on {named(self.samples)}: {seconds:.1f} s, {count} samples"

    def _notes(self) -> list[str]:
        notes = []
        idle = sum(sampled.idle for sampled in self.samples.values())
        if idle >= 0.05:
            notes.append(f"none of your code ran for {idle:.1f} s of this, summed over the ranks")
        if self._missing:
            notes.append(
                f"{named(self._missing)} did not report: Python can't run "
                "there, probably because C code holds the GIL; job.stacks() shows where"
            )
        return notes


def _lines(root: Call) -> list[str]:
    """The calls that took most, indented below their callers."""
    found: list[str] = []
    calls = [(call, 0) for call in reversed(root.by_time)]
    while calls and len(found) < _MOST_LINES:
        call, depth = calls.pop()
        share = call.total / (root.total or 1.0)
        if share >= _LEAST_SHARE and call.frame is not None:
            mark = " (collective operation)" if call.is_collective else ""
            found.append(f"{share:5.0%}  {'  ' * depth}{name_of(call.frame)}{mark}")
            calls += [(child, depth + 1) for child in reversed(call.by_time)]
    return found


@dataclass
class Call:
    """A function that was called from the same place, with what it called in turn."""

    frame: Frame | None
    """`None` for the root."""
    own: float = 0.0
    """Seconds in which it was the innermost call."""
    total: float = 0.0
    """Seconds in it and in what it called."""
    collective: float = 0.0
    """Seconds of these in a collective operation that this call is a part of."""
    children: dict[tuple[str, int, str], Call] = field(default_factory=dict)

    @property
    def is_collective(self) -> bool:
        """Whether its time is that of a collective operation."""
        return self.collective > self.total / 2

    @property
    def by_time(self) -> list[Call]:
        """What it called, the longest first."""
        return sorted(self.children.values(), key=lambda call: -call.total)

    def walk(self) -> Iterator[Call]:
        """This call, and all below it."""
        calls = [self]
        while calls:
            yield (call := calls.pop())
            calls += call.children.values()


def call_tree(samples: Iterable[Sampled]) -> Call:
    """The tree of the samples of one rank, or of several ranks added up."""
    root = Call(None)
    for sampled in samples:
        _add(root, sampled)
    return root


def _add(root: Call, sampled: Sampled) -> None:
    calls: list[Call] = []
    for frame, caller, microseconds in zip(sampled.frames, sampled.callers, sampled.microseconds, strict=True):
        above = calls[caller] if caller >= 0 else root
        call = above.children.setdefault((frame.filename, frame.lineno, frame.name), Call(frame))
        calls.append(call)
        if microseconds:
            _add_time(root, _path(sampled, calls), microseconds / 1e6)


def _path(sampled: Sampled, calls: list[Call]) -> list[Call]:
    """The stack of the last of the calls, the innermost first."""
    found, number = [], len(calls) - 1
    while number >= 0:
        found.append(calls[number])
        number = sampled.callers[number]
    return found


def _add_time(root: Call, stack: list[Call], seconds: float) -> None:
    stack[0].own += seconds
    name, index = stack_frames.outermost_collective(
        (call.frame.filename, call.frame.name) for call in stack if call.frame is not None
    )
    for position, call in enumerate([*stack, root]):
        call.total += seconds
        if name and position <= index:
            call.collective += seconds


def in_collectives(root: Call) -> float:
    """Seconds in collective operations."""
    found, calls = 0.0, [root]
    while calls:
        call = calls.pop()
        if call.is_collective:
            found += call.collective
        else:
            calls += call.children.values()
    return found


def name_of(frame: Frame) -> str:
    """`train, In[3] line 12`: the function and the place, as tracebacks name it."""
    return f"{frame.name}, {installed.short(stack_frames.where(frame))}"


def is_users(frame: Frame) -> bool:
    """Whether the code is the user's own."""
    return cell_names.name_of(frame.filename) != frame.filename or stack_frames.is_user_file(frame.filename)


def draw(head: str, notes: list[str], trees: Mapping[str, Call], merged: Call) -> str:
    """The whole output.

    Args:
        head: What was sampled.
        notes: Further lines of text.
        trees: The tree of each rank, by its name.
        merged: The tree of all ranks together.
    """
    words = "width: share of the time; outermost call at the top"
    parts = [pictures.legend((_USERS, _TORCH, _OTHER, _COLLECTIVE), words)]
    if len(trees) == 1:
        parts.append(_graph(merged))
    elif trees:
        parts.append(_section("all ranks together", merged, is_open=True))
        parts += [_section(name, tree) for name, tree in list(trees.items())[:MOST_RANKS]]
        if len(trees) > MOST_RANKS:
            left = len(trees) - MOST_RANKS
            parts.append(
                pictures.div(f"{left} more ranks are not drawn by themselves; job.flamegraph(rank=…) draws one")
            )
    return pictures.picture(head, notes, *parts) + f"<script>{_SCRIPT}</script>"


def _section(name: str, tree: Call, *, is_open: bool = False) -> str:
    share = in_collectives(tree) / (tree.total or 1)
    words = f"{name}: {tree.total:.1f} s" + (f", {share:.0%} in collective operations" if share >= 0.005 else "")
    summary = f"<summary>{html.escape(words)}</summary>"
    return f"<details{' open' if is_open else ''}>{summary}{_graph(tree)}</details>"


def _graph(root: Call) -> str:
    return pictures.div(_row(root, root.total or 1.0, 0), "margin:4px 0 8px;font-size:12px")


def _row(call: Call, whole: float, depth: int) -> str:
    """What a call has called, side by side."""
    drawn = [child for child in call.by_time if child.total >= _LEAST * whole]
    if not drawn or depth == _MOST_DEPTH:
        return ""
    boxes = "".join(
        pictures.div(_box(child, whole) + _row(child, whole, depth + 1), f"width:{100 * child.total / call.total:.3f}%")
        for child in drawn
    )
    return pictures.div(boxes, "display:flex")


def _box(call: Call, whole: float) -> str:
    assert call.frame is not None
    _, color, ink = _kind(call)
    label = shortened(name_of(call.frame), _MOST_CHARACTERS)
    if call.is_collective:
        label = f"collective: {label}"
    own = f", {call.own:.2f} s in itself" if call.own >= 0.005 and call.children else ""
    source = shortened(stack_frames.source(call.frame), _MOST_CHARACTERS) if _is_users(call) else ""
    details = f"{label}\n{call.total / whole:.1%}, {call.total:.2f} s{own}" + (f"\n{source}" if source else "")
    style = (
        f"background-color:{color};color:{ink};height:18px;line-height:18px;margin:0 1px 1px 0;overflow:hidden;"
        "white-space:nowrap;text-overflow:ellipsis;border-radius:2px"
    )
    return f'<div title="{html.escape(details)}" style="{style}">&nbsp;{html.escape(label)}</div>'


def _kind(call: Call) -> tuple[str, str, str]:
    assert call.frame is not None
    if call.is_collective:
        return _COLLECTIVE
    if _is_users(call):
        return _USERS
    return _TORCH if "/torch/" in call.frame.filename else _OTHER


def _is_users(call: Call) -> bool:
    return call.frame is not None and is_users(call.frame)


def speedscope_document(title: str, trees: Mapping[str, Call]) -> dict[str, Any]:
    """The content of the file, as JSON.

    Args:
        title: The name of the whole.
        trees: The tree of each profile, by the profile's name.
    """
    frames: dict[tuple[str, int, str], int] = {}
    profiles = [_profile(name, tree, frames) for name, tree in trees.items()]
    return {
        "$schema": _SCHEMA,
        "exporter": "notebook-accel",
        "name": title,
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name, "file": file, "line": line} for file, line, name in frames]},
        "profiles": profiles,
    }


def _profile(name: str, tree: Call, frames: dict[tuple[str, int, str], int]) -> dict[str, Any]:
    samples: list[list[int]] = []
    weights: list[float] = []
    calls: list[tuple[Call, list[int]]] = [(tree, [])]
    while calls:
        call, stack = calls.pop()
        if call.frame is not None:
            stack = [*stack, frames.setdefault(_key(call.frame), len(frames))]
            if call.own:
                samples.append(stack)
                weights.append(round(call.own, 6))
        calls += [(child, stack) for child in reversed(call.by_time)]
    end = round(sum(weights), 6)
    profile = {"type": "sampled", "name": name, "unit": "seconds", "startValue": 0, "endValue": end}
    return {**profile, "samples": samples, "weights": weights}


def _key(frame: Frame) -> tuple[str, int, str]:
    return cell_names.name_of(frame.filename), frame.lineno, frame.name
