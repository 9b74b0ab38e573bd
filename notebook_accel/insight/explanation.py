"""Why a job has failed, is stalled, or is slow: `explain(job)` gathers what is recorded, each with its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypedDict

from notebook_accel.errors import JobLostError
from notebook_accel.insight import advice, step_times
from notebook_accel.insight.job_facts import FORMAT
from notebook_accel.launch.job import describe, headline, location, output_log, progress, rank_error, resources
from notebook_accel.launch.job.job_state import JobState, Status
from notebook_accel.launch.job.rank_state import WAITS_FOR_INPUT, RankState
from notebook_accel.launch.job.text import percent, shortened
from notebook_accel.launch.wire.plain_text import both_ends, quoted, visible
from notebook_accel.rank_spans import named

FAILED, OUT_OF_MEMORY, LOST, STOPPED = "failed", "out_of_memory", "lost", "stopped"
STALLED, INPUT, PAUSED, IMPORTS = "stalled", "waits_for_input", "paused", "imports"
VALUES, HARDWARE, BEHIND, SLOW = "not_finite", "hardware", "behind", "slow"
KINDS = {
    FAILED: "a rank raised an exception, or its process ended",
    OUT_OF_MEMORY: "a rank failed because memory ran out, on its device or on the machine",
    LOST: "the process that ran the job ended first",
    STOPPED: "the job was cancelled or interrupted",
    STALLED: "no rank makes progress",
    INPUT: "a rank waits at `input()` or in the debugger",
    PAUSED: "a user has paused the training",
    IMPORTS: "a rank imports a module, which others may wait for",
    VALUES: "a metric has values that are NaN or infinite",
    HARDWARE: "a GPU has errors, or runs below its clock rate",
    BEHIND: "a rank has done far less than the median rank",
    SLOW: "a change would make the steps faster",
}
"""The kinds of findings, in their order."""
_MAX_TEXT, _MAX_EVIDENCE = 600, 3000
_LEAST_EVIDENCE = 40
_LAST_LINES = 10
_MAX_RANKS = 2
"""How many ranks' last lines are evidence."""
_MAX_STACKS = 4


@dataclass(frozen=True)
class Evidence:
    """What a finding follows from."""

    source: str
    """What it is: `the last lines of rank 1`."""
    text: str
    """As it was recorded; often written by the code of the ranks."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a job, or that explains its state."""

    kind: str
    """One of `KINDS`."""
    text: str
    """A sentence in one line, without a full stop."""
    evidence: Sequence[Evidence] = ()

    def __str__(self) -> str:
        return self.shown(_MAX_EVIDENCE)

    def shown(self, most: int) -> str:
        """The finding as text, with at most so many characters of each evidence; without evidence if that is 0."""
        parts = [f"{self.kind.replace('_', ' ')}: {self.text}"]
        for each in self.evidence if most else ():
            parts += [f"{each.source}:", quoted(each.text, most)]
        return "\n".join(parts)


class EvidenceFacts(TypedDict):
    """As `Evidence`."""

    source: str
    text: str


class FindingFacts(TypedDict):
    """As `Finding`."""

    kind: str
    text: str
    evidence: list[EvidenceFacts]


class ExplanationFacts(TypedDict):
    """As `Explanation`."""

    format: int
    id: str
    title: str
    status: str
    findings: list[FindingFacts]
    text: str


@dataclass(frozen=True, repr=False)
class Explanation:
    """Why a job is as it is; prints as text."""

    id: str
    """The job."""
    title: str
    status: str
    headline: str
    """The job in one line."""
    findings: Sequence[Finding]
    """The most important first; empty if nothing is wrong, as far as it is recorded."""
    next_step: str = ""
    """What to do about it, if one thing is."""

    def __repr__(self) -> str:
        return self._joined([str(finding) for finding in self.findings])

    def within(self, most: int) -> str:
        """The same in at most so many characters, for a reader that pays for each: with as much evidence as fits."""
        shown = [finding.shown(0) for finding in self.findings]
        while len(self._joined(shown)) > most and len(shown) > 1:
            shown.pop()
        evidence = [each for finding in self.findings[: len(shown)] for each in finding.evidence]
        for share in (_MAX_EVIDENCE, *range(most, _LEAST_EVIDENCE, -_LEAST_EVIDENCE)) if evidence else ():
            found = self._joined([finding.shown(share) for finding in self.findings[: len(shown)]])
            if len(found) <= most:
                return found
        return both_ends(self._joined(shown), most)

    def _joined(self, found: Sequence[str]) -> str:
        shown = found or ["nothing is wrong, as far as it is recorded"]
        return "\n\n".join([self.headline, *shown, *([self.next_step] if self.next_step else [])])

    def as_json(self) -> ExplanationFacts:
        """The explanation as a dict of JSON's types."""
        return {
            "format": FORMAT,
            "id": self.id,
            "title": self.title,
            "status": self.status,
            "findings": [
                {
                    "kind": finding.kind,
                    "text": finding.text,
                    "evidence": [
                        {"source": each.source, "text": both_ends(each.text, _MAX_EVIDENCE)}
                        for each in finding.evidence
                    ],
                }
                for finding in self.findings
            ],
            "text": repr(self),
        }


def explain(job: JobState) -> Explanation:
    """Gathers why a job has failed, is stalled, or is slow, from its state alone."""
    return Explanation(
        id=job.id,
        title=job.title,
        status=job.status.value,
        headline=visible(describe.headline(job)),
        findings=[_in_one_line(finding) for find in _FINDERS for finding in find(job)],
        next_step=describe.resume_hint(job) or _starts_over(job),
    )


def _starts_over(job: JobState) -> str:
    """What becomes of an unfinished training that has saved nothing."""
    is_unfinished = job.status.ended and job.status is not Status.DONE
    if not is_unfinished or job.saved_step is not None or not job.launched.checkpoint_dir:
        return ""
    return "it had not saved a checkpoint yet: the same launch starts its training over"


def _in_one_line(finding: Finding) -> Finding:
    return Finding(finding.kind, shortened(visible(finding.text), _MAX_TEXT), finding.evidence)


def _ended(job: JobState) -> Iterator[Finding]:
    """How it ended, unless it is done."""
    if job.outcome is None or job.status is Status.DONE:
        yield from _failing(job)
        return
    first, _, rest = job.outcome.error.partition("\n")
    failed = rank_error.failed(job.ranks)
    kind = LOST if job.status.is_lost else STOPPED
    if job.status is Status.FAILED:
        kind = _kind(failed, job.outcome.error)
    evidence = [Evidence("its error", rest.strip("\n"))] if rest.strip() else []
    causes = [state for state in failed if state.failed is None or not state.failed.from_peer]
    lines = _last_lines(job, causes)
    yield Finding(kind, first or f"it was {job.status.value}", [*evidence, *lines])


def _failing(job: JobState) -> Iterator[Finding]:
    """Ranks that have failed, of a job whose end is not recorded yet."""
    failed = progress.failed(job)
    if failed:
        text = "; ".join(f"{named([state.rank])}: {progress.why_failed(state)}" for state in failed[:_MAX_RANKS])
        yield Finding(_kind(failed, ""), text, [*_last_lines(job, failed)])


def _kind(failed: Sequence[RankState], error: str) -> str:
    raised = any(state.failed is not None and state.failed.out_of_memory is not None for state in failed)
    return OUT_OF_MEMORY if raised or rank_error.OUT_OF_MEMORY in error else FAILED


def _stalled(job: JobState) -> Iterator[Finding]:
    text = location.explain(job)
    if not text:
        return
    stacks = [
        Evidence(f"the stack of {named(ranks)}", stack) for ranks, stack in location.stalled_stacks(job)[:_MAX_STACKS]
    ]
    blocking = progress.overview(job).blocking
    ranks = [state for state in job.ranks if state.rank in blocking]
    yield Finding(STALLED, text, [*stacks, *_last_lines(job, ranks)])


def _waiting(job: JobState) -> Iterator[Finding]:
    if job.status.ended:
        return
    ranks = [state.rank for state in job.ranks if state.detail == WAITS_FOR_INPUT]
    if ranks:
        yield Finding(INPUT, f"{named(ranks)}: {WAITS_FOR_INPUT}")
    if job.is_paused:
        yield Finding(PAUSED, "its training is paused until job.resume()")
    if job.stalled is None:
        importing = {state.doing: [each.rank for each in job.ranks if each.doing == state.doing]
                     for state in job.ranks if state.is_importing}  # fmt: skip
        yield from (Finding(IMPORTS, f"{named(found)}: {doing}") for doing, found in importing.items())


def _values(job: JobState) -> Iterator[Finding]:
    for name in progress.metric_names(job):
        drawing = progress.metric(job, name, 1)
        if drawing.nan or drawing.infinite:
            kinds = [f"{drawing.nan} NaN"] if drawing.nan else []
            kinds += [f"{drawing.infinite} infinite"] if drawing.infinite else []
            where = f"{'step' if drawing.by_step else 'report'} {drawing.first_unusual}"
            yield Finding(VALUES, f"{name} has {' and '.join(kinds)}, first at {where}")


def _hardware(job: JobState) -> Iterator[Finding]:
    for warning in resources.warnings(job):
        yield Finding(HARDWARE, warning.rstrip("."))


def _behind(job: JobState) -> Iterator[Finding]:
    found = headline.headline(job)
    if found.is_behind:
        yield Finding(BEHIND, f"{found.done} at the median rank; {found.slowest}")


def _slow(job: JobState) -> Iterator[Finding]:
    measured = {state.rank: state.step_times for state in job.ranks if state.step_times is not None}
    for sentence in advice.advice(measured):
        yield Finding(SLOW, sentence, [Evidence("the parts of a step", _step(step_times.rows(measured.items())))])


def _step(rows: Sequence[step_times.Row]) -> str:
    """`12.3 ms at the median rank: data 45%, forward 20%`."""
    shares = {part: median(float(row[f"{part}_share"] or 0.0) for row in rows) for part in step_times.PARTS}
    parts = sorted(shares, key=lambda part: shares[part], reverse=True)
    seconds = median(float(row["seconds"] or 0.0) for row in rows)
    named_parts = ", ".join(f"{part} {percent(shares[part])}" for part in parts if shares[part] >= 0.01)
    return f"{1000 * seconds:.1f} ms{' at the median rank' if len(rows) > 1 else ''}: {named_parts}"


_FINDERS = (_ended, _stalled, _waiting, _values, _hardware, _behind, _slow)


def _last_lines(job: JobState, states: Sequence[RankState]) -> Iterator[Evidence]:
    known = [state.rank for state in job.ranks]
    for state in states[:_MAX_RANKS]:
        try:
            lines = output_log.last_lines(job.output_log, known, state.rank, _LAST_LINES)
        except JobLostError as error:
            yield Evidence(f"the last lines of rank {state.rank}", str(error))
            continue
        if lines:
            yield Evidence(f"the last lines of rank {state.rank}", "\n".join(line.text for line in lines))
