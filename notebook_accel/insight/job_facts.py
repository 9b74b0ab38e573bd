"""A job for programs: its state as a dict of JSON's types, of a format that stays the same."""

from __future__ import annotations

import math
from typing import TypedDict

from notebook_accel.launch.job import describe, progress
from notebook_accel.launch.job.energy import Energy
from notebook_accel.launch.job.job_state import JobState
from notebook_accel.launch.job.metric_charts import Drawing, Place
from notebook_accel.launch.job.waiting import Waited

FORMAT = 1
"""The number of the format. It changes when a field is removed or means something else, not when one is added."""
MOST_METRICS = 50
_MOST_TEXT = 1000

Number = float | str
"""A number; `"NaN"`, `"Infinity"`, and `"-Infinity"` stand for those that JSON lacks."""


class PlaceFacts(TypedDict):
    """A value of a metric."""

    value: Number
    at: int
    """The step, or the number of the report if the metric has no steps."""


class MetricFacts(TypedDict):
    """A metric of the last attempt."""

    value: Number
    """The mean over the ranks at the last step that they all have reported."""
    at: int
    by_step: bool
    """Whether `at` is a step; otherwise, it is the number of the report."""
    low: Number
    """The least value of a rank at that step."""
    high: Number
    best: PlaceFacts | None
    """The best mean; null if the name doesn't tell which values are good."""
    least: PlaceFacts | None
    """The least finite value of any rank at any step."""
    most: PlaceFacts | None
    nan: int
    """How many values are NaN."""
    infinite: int


class RankFacts(TypedDict):
    """How far a rank is."""

    rank: int
    done: float


class EnergyFacts(TypedDict):
    """What the devices of a job have used while it ran, for whatever ran on them."""

    kwh: float
    """All that was counted, in kilowatt-hours."""
    gpus: float | None
    """Kilowatt-hours of GPUs; null if they were not counted."""
    cpus: float | None
    """Kilowatt-hours of processors and the memory at them; null if they were not counted."""
    ranks_without_gpu: int
    """Ranks whose GPU is missing in the sum."""
    ranks_without_cpus: int
    """Ranks whose processors are missing in the sum."""
    seconds: float
    """How long it was counted."""
    grams_co2: float | None
    """null without the setting `co2_per_kwh`."""


class JobFacts(TypedDict):
    """A job as it is at one moment."""

    format: int
    id: str
    title: str
    status: str
    """The value of a `Status`, such as `running`."""
    waits: str
    """`stalled` or `paused` if the job runs and makes no progress; otherwise empty."""
    started: float
    """Seconds since the epoch."""
    seconds: float
    """How long it has run."""
    ended: float | None
    attempt: int
    """0 for the first."""
    ranks: dict[str, list[int]]
    """By phase, such as `running`."""
    done: float | None
    """The fraction that the median rank has done; null if it is not known."""
    slowest: RankFacts | None
    seconds_left: float | None
    step: int | None
    """How many steps its training has done, if it can be resumed."""
    checkpoint_step: int | None
    """The step of its newest checkpoint."""
    energy: EnergyFacts | None
    """null if it can't be measured, or not yet."""
    resumable: bool
    """Whether it has ended unfinished, and can be resumed."""
    metrics: dict[str, MetricFacts]
    """By name; the first 50."""
    metrics_left_out: int
    error: str
    """The first line of its error; empty if it has none."""
    notices: list[str]
    """The user's notes, restarts, changes, and how to continue."""
    text: str
    """All of this as text, at most 1,500 characters."""


class WaitFacts(TypedDict):
    """How a wait ended."""

    format: int
    event: str
    """`reached`, `ended`, `stalled`, or `timeout`."""
    text: str
    job: JobFacts


def facts(job: JobState) -> JobFacts:
    """What programs read about a job."""
    found, used = progress.overview(job), job.energy
    names = progress.metric_names(job)
    drawn = ((name, progress.metric(job, name, 1)) for name in names[:MOST_METRICS])
    waits = "" if job.status.ended else "stalled" if job.stalled is not None else "paused" if job.is_paused else ""
    slowest = found.slowest if found.fractions else None
    error = "" if job.outcome is None else job.outcome.error.partition("\n")[0]
    return {
        "format": FORMAT,
        "id": job.id,
        "title": job.title,
        "status": job.status.value,
        "waits": waits,
        "started": job.started,
        "seconds": round(job.seconds, 3),
        "ended": job.ended,
        "attempt": job.attempt,
        "ranks": describe.by_phase(job),
        "done": found.done,
        "slowest": None if slowest is None else {"rank": slowest, "done": found.fractions[slowest]},
        "seconds_left": found.remaining if not job.status.ended else None,
        "step": job.step,
        "checkpoint_step": job.saved_step,
        "energy": None if used is None else _energy(used),
        "resumable": job.resumable,
        "metrics": {name: metric for name, drawing in drawn if (metric := _metric(drawing)) is not None},
        "metrics_left_out": max(0, len(names) - MOST_METRICS),
        "error": error[:_MOST_TEXT],
        "notices": [line[:_MOST_TEXT] for line in describe.notices(job)],
        "text": describe.summary(job),
    }


def wait_facts(job: JobState, found: Waited) -> WaitFacts:
    """How a wait for a job ended."""
    return {"format": FORMAT, "event": found.event, "text": found.text, "job": facts(job)}


def _energy(used: Energy) -> EnergyFacts:
    return {
        "kwh": used.kwh,
        "gpus": used.gpus,
        "cpus": used.cpus,
        "ranks_without_gpu": used.ranks_without_gpu,
        "ranks_without_cpus": used.ranks_without_cpus,
        "seconds": round(used.seconds, 3),
        "grams_co2": used.grams_co2,
    }


def _metric(drawing: Drawing) -> MetricFacts | None:
    last = drawing.last
    if last is None:
        return None
    return {
        "value": number(last.mean),
        "at": last.last,
        "by_step": drawing.by_step,
        "low": number(last.low if last.count else last.mean),
        "high": number(last.high if last.count else last.mean),
        "best": _place(drawing.best),
        "least": _place(drawing.least),
        "most": _place(drawing.most),
        "nan": drawing.nan,
        "infinite": drawing.infinite,
    }


def _place(place: Place | None) -> PlaceFacts | None:
    return None if place is None else {"value": number(place.value), "at": place.x}


def number(value: float) -> Number:
    """The number as JSON has it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
