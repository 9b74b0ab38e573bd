"""Compares the metrics of several jobs: reads their reports when somebody looks, a limited time at each call."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from notebook_accel.errors import JobLostError
from notebook_accel.events import JobStarted
from notebook_accel.jupyter.model import Comparison, Curve, Run, RunFact
from notebook_accel.jupyter.reader.job_list import UnknownJobError, find
from notebook_accel.jupyter.reader.job_row import telling_damage
from notebook_accel.jupyter.reader.run_metric import RunMetrics
from notebook_accel.launch.job.metric_charts import Drawing, last_steps
from notebook_accel.launch.job.metric_text import metric_text
from notebook_accel.launch.job.text import clock, date, duration, shortened, value
from notebook_accel.launch.job.text import title as title_of
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.records import Record

MOST = 8
"""The most jobs of a comparison: as many as there are colors that differ."""
READING = 0.5
"""Seconds for which one call may read."""
_SMALL = 60
"""The most points of a metric beside the one that is asked for."""
_TEXT_LIMIT = 300
_NAME_LIMIT = 80
"""The most characters of what tells a job from others of the same title."""


class Comparisons:
    """The jobs that were asked for lately. For one thread at a time."""

    def __init__(self) -> None:
        self._runs: dict[str, RunMetrics] = {}
        """By the job's ID; the last in order is the one that was used last."""

    def compare(self, jobs: Sequence[str], metric: str, seconds: float = READING) -> Comparison:
        """The metrics of jobs, as far as they were read within the time that a call has.

        Args:
            jobs: Their IDs; those beyond `MOST` are left out.
            metric: The metric that is drawn in detail.
            seconds: How long to read; the next call continues.
        """
        deadline = time.monotonic() + seconds
        names: dict[str, None] = {}
        found: dict[str, tuple[RunMetrics, JobStarted]] = {}
        problems: dict[str, str] = {}
        complete = True
        for job_id in jobs[:MOST]:
            try:
                record = find(job_id)
                with telling_damage():
                    run = self._run(record, metric)
                    complete = run.read(deadline) and complete
                    found[job_id] = run, Marks.of(record).on(run.start)
            except (UnknownJobError, JobLostError) as error:
                self._runs.pop(job_id, None)
                problems[job_id] = str(error)
            else:
                names.update(run.names)
        starts = [start for _, start in found.values()]
        varied = {name: f"{name} (argument)" if name in names else name for name in _varied(starts)}
        labels = _labels(starts, varied)
        runs = [
            _described(*found[job_id], metric, labels[job_id], varied)
            if job_id in found
            else _missing(job_id, problems[job_id])
            for job_id in jobs[:MOST]
        ]
        return {"metric": metric, "names": list(names), "runs": runs, "complete": complete}

    def _run(self, record: Record, metric: str) -> RunMetrics:
        found = self._runs.pop(record.id, None)
        if found is None or not found.has(metric):
            found = RunMetrics(record, metric)
        self._runs[record.id] = found
        while len(self._runs) > MOST:
            del self._runs[next(iter(self._runs))]
        return found


def _varied(starts: Sequence[JobStarted]) -> list[str]:
    """The arguments that differ between the jobs, in the order of the functions' parameters."""
    names = dict.fromkeys(name for start in starts for name in start.arguments)
    return [name for name in names if len({start.arguments.get(name) for start in starts}) > 1]


def _labels(starts: Sequence[JobStarted], varied: Iterable[str]) -> dict[str, str]:
    """What to call each job: its title, and if others have the same, what tells them apart."""
    labels = {start.id: shortened(start.title or title_of(start.name), _TEXT_LIMIT) for start in starts}
    more = (
        lambda start: ", ".join(f"{name}={start.arguments[name]}" for name in varied if name in start.arguments),
        lambda start: date(start.at),
        lambda start: start.id,
    )
    for words_of in more:
        given = list(labels.values())
        shared = [start for start in starts if given.count(labels[start.id]) > 1]
        for start in shared:
            if words := words_of(start):
                labels[start.id] += f", {shortened(words, _NAME_LIMIT)}"
    return labels


def _described(run: RunMetrics, start: JobStarted, metric: str, label: str, varied: Mapping[str, str]) -> Run:
    drawn = run.drawn(metric, _SMALL)
    return {
        "id": start.id,
        "label": label,
        "curves": {name: _curve(drawing) for name, drawing in drawn.items()},
        "facts": list(_facts(run, start, metric, drawn, varied)),
        "problem": "" if metric in drawn else f"it hasn't reported {shortened(metric, _TEXT_LIMIT)}",
    }


def _curve(drawing: Drawing) -> Curve:
    return {
        "by_step": drawing.by_step,
        "x": [point.first for point in drawing.points],
        "last": last_steps(drawing.points),
        "mean": [None if math.isnan(point.mean) else point.mean for point in drawing.points],
    }


def _missing(job_id: str, problem: str) -> Run:
    return {"id": job_id, "label": job_id, "curves": {}, "facts": [], "problem": problem}


def _facts(
    run: RunMetrics, start: JobStarted, metric: str, drawn: Mapping[str, Drawing], varied: Mapping[str, str]
) -> Iterator[RunFact]:
    """What a row of the table says.

    Args:
        run: The job's metrics.
        start: How the job was started.
        metric: The one that is drawn in detail, which comes first.
        drawn: What is known of each metric.
        varied: The arguments that differ between the jobs, and what their columns are called.
    """
    end = run.end
    yield _fact("State", "running" if run.is_running else "ended" if end is None else end.status)
    for name, column in varied.items():
        text = start.arguments.get(name, "")
        yield _fact(column, text, _number(text))
    for name in sorted(drawn, key=lambda name: name != metric):
        drawing = drawn[name]
        yield _fact(name, metric_text(drawing).now, None if drawing.last is None else drawing.last.mean)
        if name == metric and drawing.best is not None:
            where = f"at {'step' if drawing.by_step else 'report'} {drawing.best.x}"
            yield _fact("Best", f"{value(drawing.best.value)} {where}", drawing.best.value)
    if end is not None or run.is_running:
        seconds = (time.time() if end is None else end.at) - start.at
        yield _fact("Time", clock(seconds) if end is None else duration(seconds), seconds)
    yield _fact("Ranks", str(start.world_size), start.world_size)
    yield _fact("Began", date(start.at), start.at)
    yield _fact("Notes", shortened(start.notes, _TEXT_LIMIT))
    yield _fact("Call", shortened(start.call or start.name, _TEXT_LIMIT))
    yield _fact("Notebook", run.notebook)


def _number(text: str) -> float | None:
    """The number that an argument is, by which rows are sorted."""
    try:
        return float(text)
    except ValueError:
        return None


def _fact(name: str, text: str, order: float | None = None) -> RunFact:
    return {"name": name, "text": text, "order": order if order is not None and math.isfinite(order) else None}
