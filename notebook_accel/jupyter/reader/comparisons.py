"""Compares a metric of several jobs: reads it from their reports when somebody looks, a limited time at each call."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from notebook_accel.errors import JobLostError
from notebook_accel.events import JobStarted
from notebook_accel.jupyter.model import Comparison, Run, RunFact
from notebook_accel.jupyter.reader.job_list import UnknownJobError, find
from notebook_accel.jupyter.reader.job_row import telling_damage
from notebook_accel.jupyter.reader.run_metric import RunMetric
from notebook_accel.launch.job.metric_charts import Drawing
from notebook_accel.launch.job.metric_text import metric_text
from notebook_accel.launch.job.text import clock, date, shortened, value
from notebook_accel.launch.job.text import title as title_of
from notebook_accel.launch.journal.marks import Marks
from notebook_accel.launch.journal.records import Record

MOST = 8
"""The most jobs of a comparison: as many as there are colors that differ."""
READING = 0.5
"""Seconds for which one call may read."""
_MOST_KEPT = 2 * MOST
_TEXT_LIMIT = 300


class Comparisons:
    """The metrics that were asked for lately. For one thread at a time."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], RunMetric] = {}
        """By the job's ID and the metric; the last in order is the one that was used last."""

    def compare(self, jobs: Sequence[str], metric: str, seconds: float = READING) -> Comparison:
        """A metric of jobs, as far as it was read within the time that a call has.

        Args:
            jobs: Their IDs; those beyond `MOST` are left out.
            metric: The metric's name.
            seconds: How long to read; the next call continues.
        """
        deadline = time.monotonic() + seconds
        names: dict[str, None] = {}
        runs: list[Run] = []
        complete = True
        for job_id in jobs[:MOST]:
            try:
                record = find(job_id)
                with telling_damage():
                    run = self._run(record, metric)
                    complete = run.read(deadline) and complete
                    described = _described(run, metric, Marks.of(record))
            except (UnknownJobError, JobLostError) as error:
                self._runs.pop((job_id, metric), None)
                runs.append(_missing(job_id, str(error)))
            else:
                names.update(run.names)
                runs.append(described)
        return {"metric": metric, "names": list(names), "runs": runs, "complete": complete}

    def _run(self, record: Record, metric: str) -> RunMetric:
        found = self._runs.pop((record.id, metric), None) or RunMetric(record, metric)
        self._runs[record.id, metric] = found
        while len(self._runs) > _MOST_KEPT:
            del self._runs[next(iter(self._runs))]
        return found


def _described(run: RunMetric, metric: str, marks: Marks) -> Run:
    drawing = run.drawn()
    points = [] if drawing is None else drawing.points
    start = marks.on(run.start)
    title = start.title or title_of(start.name)
    return {
        "id": start.id,
        "label": f"{shortened(title, _TEXT_LIMIT)}, {date(start.at)}",
        "by_step": drawing is None or drawing.by_step,
        "x": [point.x for point in points],
        "mean": [None if math.isnan(point.mean) else point.mean for point in points],
        "facts": list(_facts(run, start, drawing)),
        "problem": "" if drawing is not None else f"it hasn't reported {shortened(metric, _TEXT_LIMIT)}",
    }


def _missing(job_id: str, problem: str) -> Run:
    return {"id": job_id, "label": job_id, "by_step": True, "x": [], "mean": [], "facts": [], "problem": problem}


def _facts(run: RunMetric, start: JobStarted, drawing: Drawing | None) -> Iterator[RunFact]:
    end = run.end
    yield _fact("State", "running" if run.is_running else "ended" if end is None else end.status)
    if drawing is not None:
        yield _fact("Last", metric_text(drawing).now, None if drawing.last is None else drawing.last.mean)
        if drawing.best is not None:
            where = f"at {'step' if drawing.by_step else 'report'} {drawing.best.x}"
            yield _fact("Best", f"{value(drawing.best.value)} {where}", drawing.best.value)
    seconds = (end.at if end is not None else time.time()) - start.at
    if end is not None or run.is_running:
        yield _fact("Time", clock(seconds), seconds)
    yield _fact("Ranks", str(start.world_size), start.world_size)
    yield _fact("Call", shortened(start.call or start.name, _TEXT_LIMIT))
    yield _fact("Notes", shortened(start.notes, _TEXT_LIMIT))
    yield _fact("Notebook", run.notebook)


def _fact(name: str, text: str, order: float | None = None) -> RunFact:
    return {"name": name, "text": text, "order": order if order is not None and math.isfinite(order) else None}
