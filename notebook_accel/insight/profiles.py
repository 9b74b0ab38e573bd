"""Profiles of training steps by torch's profiler, as `job.profile()` returns them.

The picture is HTML without a script that stays in the notebook, also where that is not trusted. Text has a contrast of
at least 4.5:1 with its background, in light and dark themes.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from notebook_accel.errors import ConfigurationError
from notebook_accel.events import Profiled, ProfileRequested
from notebook_accel.insight import pictures, profile_summary, profile_traces
from notebook_accel.insight.profile_summary import Operation, RankSummary
from notebook_accel.insight.profile_traces import RankTrace
from notebook_accel.launch.job import requests
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.requests import JobHandle
from notebook_accel.launch.job.text import shortened
from notebook_accel.rank_spans import counted, named, spans

MOST_STEPS = 1000
_LONGEST = 3600.0
_WRITING = 60.0
"""Seconds that a rank may take to stop the profiler and to send the trace."""
_MOST_BYTES = 32 * 2**20
"""The longest trace of a rank before compression, in bytes."""
_MOST_BYTES_TOGETHER = 512 * 2**20
_LEAST_BYTES = 2**20
_CAUSE = "its steps can't be profiled: call job.profile()"
_MOST_OPERATIONS = 10
_MOST_RANKS = 16
"""The most ranks that the text has a line for."""
MOST_RANKS = 32
"""The most ranks that have a row."""
_MOST_CHARACTERS = 100
_PARTS = (
    ("computation", "#f2b84b", "#1a1a1a"),
    ("overlapped communication", "#9cc3e6", "#1a1a1a"),
    ("exposed communication", "#b3261e", "#ffffff"),
    ("gaps", "#cccccc", "#1a1a1a"),
)
_OPERATION = ("operation", "ms a step", "share", "calls a step", "where ranks differ")


def profile(job: JobHandle, steps: int, rank: int | None, timeout: float) -> JobProfile:
    """Implements `Job.profile`."""
    if type(steps) is not int or not 0 < steps <= MOST_STEPS:
        raise ConfigurationError(f"steps={steps!r} can't be profiled: give a whole number from 1 to {MOST_STEPS}")
    timeout = requests.checked_number("timeout", timeout, above=0, most=_LONGEST)
    ranks = len(job.ranks) if rank is None else 1
    most = max(_LEAST_BYTES, min(_MOST_BYTES, _MOST_BYTES_TOGETHER // ranks))
    request = ProfileRequested(0, steps, timeout, most)
    found = requests.replies(job, request, timeout + _WRITING, rank, _CAUSE)
    replies = {each: event for each, event in found.by_rank.items() if isinstance(event, Profiled)}
    profiled = {each: event for each, event in replies.items() if not event.error}
    silent = [state.rank for state in job.ranks if rank in (None, state.rank) and state.rank not in replies]
    gone = [each for each in silent if each not in found.missing]
    notes = [f"{named(each)} did not reply" for each in [found.missing] if each]
    notes += [
        f"{named(each)} ended before {'it' if len(each) == 1 else 'they'} sent a trace" for each in [gone] if each
    ]
    notes += [f"{named(each)} sent no trace: {error}" for error, each in _by_error(replies).items()]
    if not profiled:
        is_late = any(event.is_late for event in replies.values())
        raise _no_trace(job, notes, is_late=is_late)
    hosts = {state.host for state in job.ranks if state.rank in profiled}
    return JobProfile(job.title, profiled, notes, several_nodes=len(hosts) > 1)


def _no_trace(job: JobState, notes: list[str], *, is_late: bool) -> Exception:
    found = "; ".join(notes) or "its ranks ended in the meantime"
    if job.status.ended:
        return requests.ended(job, f"it has no profile ({found}): call job.profile()")
    text = f"{job.title} can't be profiled now: {found}"
    if is_late:
        text += (
            ". A step ends when an optimizer of torch has stepped; if a step takes longer, pass a longer timeout=. "
            "job.flamegraph() shows where the time goes without steps"
        )
    return TimeoutError(text)


def _by_error(replies: Mapping[int, Profiled]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, reply in replies.items():
        if reply.error:
            found.setdefault(reply.error, []).append(rank)
    return found


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
            self.notes.append(self._alignment())

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
            self.ranks[rank] = profile_summary.summarize(trace)
            usages[rank] = profile_summary.usage(trace)
        if not self.ranks:
            raise ValueError("; ".join(self.notes))
        steps = {rank: summary.steps for rank, summary in self.ranks.items()}
        self.operations = profile_summary.compare(usages, steps, self.step)

    def _alignment(self) -> str:
        """How exactly the clocks of several machines are aligned: two of them may be wrong in opposite directions."""
        errors = sorted(profiled.clock_error for profiled in self._profiled.values())
        return (
            "the ranks are on several machines, whose clocks were aligned to within "
            f"{1e3 * sum(errors[-2:]):.2g} ms when the machines joined"
        )

    @property
    def step(self) -> float:
        """The mean seconds of a step over the ranks."""
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
        profile_traces.write_merged(folder / "merged.json.gz", self.ranks, self._trace, begin)
        page = pictures.page("Profile", self._repr_html_())
        (folder / "summary.html").write_text(page, encoding="utf-8")
        return folder

    def _trace(self, rank: int) -> RankTrace:
        return profile_traces.read(self._profiled[rank], since_epoch=self._since_epoch)

    def _head(self) -> str:
        steps = sorted({summary.steps for summary in self.ranks.values()})
        several = "s" if len(self.ranks) > 1 else ""
        count = counted(steps[0], "step") if len(steps) == 1 else f"{steps[0]} to {steps[-1]} steps"
        return f"{self._title} on rank{several} {spans(list(self.ranks))}: {count}, {1e3 * self.step:.1f} ms each"

    def _repr_html_(self) -> str:
        return draw(self._head(), self.notes, self.ranks, self.operations[:_MOST_OPERATIONS])

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
    return f"rank {rank}: {1e3 * summary.step:.1f} ms a step: {shares(summary)}{longest}"


def _operation_line(operation: Operation) -> str:
    name = operation.name + (f"; {difference(operation)}" if operation.differs else "")
    return f"{operation.share:5.0%} {1e3 * operation.seconds:9.2f} ms {operation.calls:7.1f} calls  {name}"


def shares(summary: RankSummary) -> str:
    """`60% computation, 30% communication (33% of it overlapped), 20% gaps`, as shares of the steps."""
    total = summary.seconds or 1.0
    parts = [f"{summary.compute / total:.0%} computation"]
    if summary.communication:
        overlapped = f"{summary.hidden / summary.communication:.0%} of it overlapped"
        parts.append(f"{summary.communication / total:.0%} communication ({overlapped})")
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
    below = [f"{len(ranks) - MOST_RANKS} more ranks are in .ranks"] if len(ranks) > MOST_RANKS else []
    return pictures.picture(
        head,
        notes,
        pictures.legend(_PARTS),
        pictures.table((_rank(rank, summary, longest) for rank, summary in shown), numbers=(2,)),
        *map(pictures.div, below),
        pictures.table(map(_operation, operations), _OPERATION, numbers=(1, 2, 3)) if operations else "",
        pictures.div("<code>save(folder)</code> writes the traces, by rank and all in one, for Perfetto."),
    )


def _rank(rank: int, summary: RankSummary, longest: float) -> tuple[str, ...]:
    exposed = summary.communication - summary.hidden
    times = (summary.compute - summary.hidden, summary.hidden, exposed, summary.gaps)
    parts = [
        (seconds, color, f"{name}: {1e3 * seconds / summary.steps:.2f} ms a step")
        for seconds, (name, color, _) in zip(times, _PARTS, strict=True)
    ]
    gaps = "".join(
        pictures.div(f"{1e3 * gap.seconds:.1f} ms {html.escape(_short(gap.what))}") for gap in summary.longest_gaps
    )
    details = f"<details><summary>longest gaps</summary>{gaps}</details>" if gaps else ""
    return (
        f"<span style='white-space:nowrap'>rank {rank}</span>",
        pictures.bar(parts, 240 * summary.step / longest),
        f"{1e3 * summary.step:.1f} ms a step",
        f"{shares(summary)}{details}",
    )


def _operation(operation: Operation) -> tuple[str, ...]:
    return (
        f"<code>{html.escape(_short(operation.name))}</code>",
        f"{1e3 * operation.seconds:.2f}",
        f"{operation.share:.0%}",
        f"{operation.calls:.1f}",
        difference(operation) if operation.differs else "",
    )


def _short(text: str) -> str:
    return shortened(text, _MOST_CHARACTERS)
