"""The flame graph of a job's ranks, as `job.flamegraph()` returns it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Sampled
from notebook_accel.launch.job.flamegraphs import call_tree, flamegraph_html, speedscope
from notebook_accel.launch.job.flamegraphs.call_tree import Call
from notebook_accel.rank_spans import named

_LEAST_SHARE = 0.05
"""The share of the time below which a call is not in the text."""
_MOST_LINES = 40


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
            text = json.dumps(speedscope.document(self._title, self._trees()))
        elif path.suffix == ".html":
            text = f"<!DOCTYPE html><meta charset='utf-8'><title>Flame graph</title>{self._repr_html_()}"
        else:
            raise ConfigurationError(
                f"a flame graph can't be saved as {path.name!r}: end the name with .json for speedscope, or with .html"
            )
        path.write_text(text, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        return flamegraph_html.draw(self._head(), self._notes(), self._trees(), self._merged())

    def __repr__(self) -> str:
        return "\n".join([self._head(), *self._notes(), *_lines(self._merged())])

    def _trees(self) -> dict[str, Call]:
        return {f"rank {rank}": call_tree.build([sampled]) for rank, sampled in self.samples.items()}

    def _merged(self) -> Call:
        return call_tree.build(self.samples.values())

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
            found.append(f"{share:5.0%}  {'  ' * depth}{call_tree.label(call.frame)}{mark}")
            calls += [(child, depth + 1) for child in reversed(call.by_time)]
    return found
