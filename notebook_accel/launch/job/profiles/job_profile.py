"""The profile of a job's training steps, as `job.profile()` returns it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from notebook_accel.events import Profiled
from notebook_accel.launch.job.profiles import merged_trace, operations, profile_html, rank_summary, rank_trace
from notebook_accel.launch.job.profiles.operations import Operation
from notebook_accel.launch.job.profiles.rank_summary import RankSummary
from notebook_accel.launch.job.profiles.rank_trace import RankTrace
from notebook_accel.rank_spans import spans

_MOST_OPERATIONS = 10
_MOST_RANKS = 16
"""The most ranks that the text has a line for."""


class JobProfile:
    """What torch's profiler recorded of some training steps on each rank.

    A notebook shows a summary, which stays in the saved notebook; `print` shows it as text. `save` writes the traces.

    Args:
        title: The name of what the ranks run.
        profiled: What each rank has sent, by its global rank. Each has a trace.
        notes: What is missing.
        several_nodes: Whether the ranks are on several nodes.

    Raises:
        ValueError: No trace can be read.
    """

    def __init__(self, title: str, profiled: Mapping[int, Profiled], notes: list[str], *, several_nodes: bool) -> None:
        self.notes = list(notes)
        """What is missing, and how exact the times are."""
        self.ranks: dict[int, RankSummary] = {}
        """What the steps of each rank spent their time on, by its global rank."""
        self._title = title
        self._profiled = dict(sorted(profiled.items()))
        self._since_epoch = several_nodes
        self.operations: list[Operation] = []
        """What each operation takes per step, the longest first."""
        self._summarize()
        if several_nodes:
            self.notes.append("the ranks are on several machines, so their clocks are aligned to about a millisecond")

    def _summarize(self) -> None:
        usages = {}
        for rank, profiled in list(self._profiled.items()):
            if profiled.note:
                self.notes.append(f"rank {rank}: {profiled.note}")
            try:
                trace = self._trace(rank)
            except ValueError as error:
                self.notes.append(f"rank {rank} has sent {error}")
                del self._profiled[rank]
                continue
            self.ranks[rank] = rank_summary.summarize(trace)
            usages[rank] = operations.usage(trace)
        if not self.ranks:
            raise ValueError("; ".join(self.notes))
        steps = {rank: summary.steps for rank, summary in self.ranks.items()}
        self.operations = operations.compare(usages, steps, self.step)

    @property
    def step(self) -> float:
        """Seconds of a step, in the mean of the ranks."""
        return sum(summary.step for summary in self.ranks.values()) / len(self.ranks)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the traces and the summary to a folder, which is created if needed, and returns its path.

        `rank-0.json.gz` and so on are the traces of the ranks, `merged.json.gz` has all of them with their clocks
        aligned, and `summary.html` is what the notebook shows. Open traces in https://ui.perfetto.dev or in
        chrome://tracing.

        Args:
            folder: Its name. Files with these names are replaced.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for rank, profiled in self._profiled.items():
            (folder / f"rank-{rank}.json.gz").write_bytes(bytes(profiled.trace[0]))
        begin = min(summary.begin for summary in self.ranks.values())
        merged_trace.write(folder / "merged.json.gz", self.ranks, self._trace, begin)
        page = f"<!DOCTYPE html><meta charset='utf-8'><title>Profile</title>{self._repr_html_()}"
        (folder / "summary.html").write_text(page, encoding="utf-8")
        return folder

    def _trace(self, rank: int) -> RankTrace:
        return rank_trace.read(self._profiled[rank], since_epoch=self._since_epoch)

    def _head(self) -> str:
        steps = sorted({summary.steps for summary in self.ranks.values()})
        several = "s" if len(self.ranks) > 1 else ""
        count = (
            f"{steps[0]} step{'s' if steps[0] > 1 else ''}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]} steps"
        )
        return f"{self._title} on rank{several} {spans(list(self.ranks))}: {count}, {1e3 * self.step:.1f} ms each"

    def _repr_html_(self) -> str:
        return profile_html.draw(self._head(), self.notes, self.ranks, self.operations[:_MOST_OPERATIONS])

    def __repr__(self) -> str:
        ranks = [_rank_line(rank, summary) for rank, summary in list(self.ranks.items())[:_MOST_RANKS]]
        if len(self.ranks) > _MOST_RANKS:
            ranks.append(f"  and {len(self.ranks) - _MOST_RANKS} more ranks: see .ranks")
        found = [_operation_line(operation) for operation in self.operations[:_MOST_OPERATIONS]]
        parts = [self._head(), *self.notes, *ranks, "operations, per step:", *found]
        return "\n".join([*parts, "save(folder) writes traces for https://ui.perfetto.dev"])


def _rank_line(rank: int, summary: RankSummary) -> str:
    gap = summary.longest_gaps[0] if summary.longest_gaps else None
    longest = f"; longest gap {1e3 * gap.seconds:.1f} ms, {gap.what}" if gap is not None else ""
    return f"rank {rank}: {1e3 * summary.step:.1f} ms a step: {profile_html.shares(summary)}{longest}"


def _operation_line(operation: Operation) -> str:
    name = operation.name + (f"; {profile_html.difference(operation)}" if operation.differs else "")
    return f"{operation.share:5.0%} {1e3 * operation.seconds:9.2f} ms {operation.calls:7.1f} calls  {name}"
