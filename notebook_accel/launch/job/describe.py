"""A job as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from notebook_accel.events import Phase
from notebook_accel.launch.job import controls, location, progress, resources, rules
from notebook_accel.launch.job import headline as headlines
from notebook_accel.launch.job.metric_text import metric_spark, metric_text
from notebook_accel.launch.job.rank_state import RankState
from notebook_accel.launch.job.text import blocks, percent, resume_commands, shortened, size, value
from notebook_accel.launch.wire.plain_text import visible
from notebook_accel.rank_spans import counted, named, spans

if TYPE_CHECKING:
    from notebook_accel.launch.job.job_state import JobState, Restart

SUMMARY = 1500
"""Characters of a summary: some 400 tokens of a language model."""
_MAX_LINE = 400
_WIDTH = 20
_SPARK_WIDTH = 24
_GRID_COLUMNS = 8
_MAX_FAILED = 4
_MAX_STACKS = 8
_MAX_METRICS = 8
_MAX_RESTARTS = 3
_MAX_REMARKS = 4


def describe(job: JobState, *, metrics: bool = True) -> str:
    """The job on one line, then a line for each metric and each rank, or a grid if there are many ranks."""
    if progress.is_brief(job):
        return "\n".join([headline(job), *notices(job)])
    first, *others = heading(job, metrics=metrics)
    lines = [first, *notices(job), *others]
    if len(job.ranks) < progress.COMPACT_FROM:
        lines += _rows(job, progress.failed_first(job))
    else:
        lines += _rows(
            job, [state for state in progress.failed_first(job)[:_MAX_FAILED] if state.phase is Phase.FAILED]
        )
        lines += _grid(job)
    for ranks, stack in location.stalled_stacks(job)[:_MAX_STACKS]:
        lines += [f"{named(ranks)}:", *stack.splitlines()]
    return "\n".join(lines)


def summary(job: JobState) -> str:
    """The job in at most `SUMMARY` characters, without drawings, for a program that asks often.

    Each line is one line, whatever names, metrics, and exceptions consist of.
    """
    failed = [state for state in progress.failed_first(job)[:_MAX_FAILED] if state.phase is Phase.FAILED]
    rows = failed if len(job.ranks) > _MAX_FAILED else progress.failed_first(job)
    lines = [
        *heading(job, draws=False),
        *notices(job),
        *(_rank(state, waits=progress.waits(job), draws=False) for state in rows),
        *(_phases(job) if len(rows) < len(job.ranks) else ()),
    ]
    shown: list[str] = []
    left = SUMMARY
    for line in (shortened(visible(line), _MAX_LINE) for line in lines):
        left -= len(line) + 1
        if left < 0:
            return "\n".join([*shown, "…"])
        shown.append(line)
    return "\n".join(shown)


def notices(job: JobState) -> list[str]:
    """Notes, choices that were made for the user, restarts, what the user changed, rules, and how to continue."""
    return [*_given(job), *changes(job), *_resume(job)]


def choices(job: JobState) -> list[str]:
    """The same without restarts, what the user changed, and rules."""
    return [*_given(job), *_resume(job)]


def _given(job: JobState) -> list[str]:
    remarks = [each.text for each in [*job.remarks][-_MAX_REMARKS:]]
    return [*job.notes.splitlines(), *remarks, *job.notice.splitlines()]


def _resume(job: JobState) -> list[str]:
    hint = resume_hint(job)
    return [hint] if hint else []


def resume_hint(job: JobState) -> str:
    """How to continue a training run that has ended unfinished; empty if it can't be."""
    return f"to continue this training, run {resume_commands(job.id)}" if job.resumable else ""


def changes(job: JobState) -> list[str]:
    """Restarts, what the user changed, and rules."""
    found = [text for restart in job.restarts if (text := _restart(job, restart))]
    left_out = len(found) - _MAX_RESTARTS
    earlier = [counted(left_out, "earlier restart")] if left_out > 0 else []
    return [*earlier, *found[-_MAX_RESTARTS:], *controls.describe_changes(job), *rules.describe_rules(job)]


def _restart(job: JobState, restart: Restart) -> str:
    """`restarted at step 120 of 140 with 3 of 4 ranks: 20 steps repeated`; empty if there is nothing to say."""
    ranks = f" with {restart.size} of {job.first_size} ranks" if restart.size != job.first_size else ""
    if restart.step is None:
        return f"restarted{ranks}" if ranks else ""
    if restart.reached is None:
        return f"restarted at step {restart.step}{ranks}"
    repeated = max(0, restart.reached - restart.step)
    steps = f"{repeated or 'no'} step{'' if repeated == 1 else 's'} repeated"
    return f"restarted at step {restart.step} of {restart.reached}{ranks}: {steps}"


def heading(job: JobState, *, metrics: bool = True, draws: bool = True) -> list[str]:
    """The lines above the ranks: the job, why it is stalled if it is, what is wrong with GPUs, and its metrics."""
    stall = location.explain(job)
    found = _metrics(job, draws) if metrics else ()
    return [headline(job), *([stall] if stall else []), *resources.warnings(job), *found]


def headline(job: JobState) -> str:
    """`train() on 4 ranks: running, 12 s, 57% (slowest: rank 2, 41%), 9 s left`."""
    words = headlines.headline(job)
    status = f"{words.status} {words.place}" if words.status == "waiting" else words.status
    seconds = "" if job.status.value == "starting" else words.seconds
    done = f"{words.done} ({words.slowest})" if words.is_behind else words.done
    hardware = job.hardware if job.status.ended and not progress.is_brief(job) else ""
    parts = (status, words.attempt, seconds, done, words.left, hardware)
    return f"{job.title} on {words.ranks}: {', '.join(part for part in parts if part)}"


def memory(state: RankState) -> str:
    """`512 MB`, and what torch holds on its GPU."""
    found = [size(state.resident)] if state.resident else []
    if state.device_used is not None:
        found.append(f"GPU {size(state.device_used)}")
    return ", ".join(found)


def load(state: RankState) -> str:
    """`CPU 98%, GPU 87%, 512 MB, GPU 2.0 GB`: how busy the rank is, while that is read, and its memory.

    At its end, also the most memory that it held, and in which phase.
    """
    found = [f"{name} {percent}" for name, percent in resources.percents(state)]
    most = resources.memory_highest(state) if state.phase.ended else ""
    return ", ".join(part for part in (*found, memory(state), most) if part)


def _metrics(job: JobState, draws: bool) -> list[str]:
    lines = []
    names = progress.metric_names(job)
    for name in names[:_MAX_METRICS]:
        drawing = progress.metric(job, name, _SPARK_WIDTH)
        parts = (name, *([metric_spark(drawing)] if draws else []), metric_text(drawing).line)
        lines.append("  ".join(parts))
    left_out = progress.left_out(names, _MAX_METRICS)
    if left_out:
        lines.append(left_out)
    return lines


def _rows(job: JobState, states: Sequence[RankState]) -> list[str]:
    rows = []
    for host, ranks in progress.by_host(job, states):
        rows += [f"on {host}:"] if host else []
        rows += [_rank(state, waits=progress.waits(job)) for state in ranks]
    return rows


def _rank(state: RankState, *, waits: bool, draws: bool = True) -> str:
    parts = [f"rank {state.rank}", f"{state.phase.value:<8}", state.doing]
    reason = progress.why_failed(state)
    if reason:
        parts.append(reason)
    found = progress.progress(state)
    if found.bars:
        bar = f"{blocks(found.fraction, _WIDTH)} " if draws and found.fraction is not None else ""
        parts.append(bar + progress.bars_text(state, found, waits=waits))
    parts += [f"{name}={value(number)}" for name, number in state.metrics.items()]
    parts.append(load(state))
    return "  ".join(part for part in parts if part).rstrip()


def by_phase(job: JobState) -> dict[str, list[int]]:
    """The ranks in each phase."""
    phases: dict[str, list[int]] = {}
    for state in job.ranks:
        phases.setdefault(state.phase.value, []).append(state.rank)
    return phases


def _phases(job: JobState) -> list[str]:
    return [f"{phase}: {len(ranks)} (ranks {spans(ranks)})" for phase, ranks in by_phase(job).items()]


def _grid(job: JobState) -> list[str]:
    lines = _phases(job)
    fractions = progress.overview(job).fractions
    if not fractions:
        return lines
    cells = [
        f"{state.rank:>4} {percent(fractions[state.rank]) if state.rank in fractions else '-':>4}"
        for state in job.ranks
    ]
    return lines + ["  ".join(cells[at : at + _GRID_COLUMNS]) for at in range(0, len(cells), _GRID_COLUMNS)]
