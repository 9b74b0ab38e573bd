"""Answers a browser that looks closely at a chart: the values of metrics in a range of steps, also rank by rank.

Only a chart that the user has enlarged asks. An answer has a bounded number of values, however many ranks and steps
there are, and says when to ask again, so that a chart that follows a running job takes little of the kernel's time.
Behind the job's own values, a chart can draw those of an earlier job.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.insight.metric_series import Feed, MetricSeries, width_of
from notebook_accel.launch.job import progress
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.metric_charts import MOST_BINS, Bins, Drawing, merged
from notebook_accel.launch.job.report_log import Entry, ReportLog
from notebook_accel.launch.job.text import date
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.job_summary import summarize
from notebook_accel.launch.journal.records import Record
from notebook_accel.launch.journal.report_file import ReportTail
from notebook_accel.panel.pacing import Pacer
from notebook_accel.panel.panel_model import ChartReply, ChartTable, EarlierJob, EarlierReply
from notebook_accel.panel.questions import Reply
from notebook_accel.rank_spans import counted

_MOST_METRICS = 6
_MOST_NUMBERS, _MOST_EXPORTED = 24_000, 500_000
"""The most values of an answer to draw, and of one to store in a file."""
_MOST_BINS, _FEWEST_POINTS = 24_000, 40
"""The most bins of all ranks that are made for an answer: a bin takes 3 microseconds."""
_MANY_RANKS = 9
"""With this many ranks or more, the whole run is drawn from what the job keeps, which costs nothing."""
_SLICE, _READING_SHARE = 0.03, 0.4
"""Seconds for which reports are read at once, and the share of the thread's time that this may take."""
_SHARE, _RATE = 0.02, 25_000
"""The share of the thread's time, and the bytes a second, that following a running job may take."""
_SHORTEST_PAUSE, _AFTER_PROBLEM = 1.0, 60_000
"""Seconds, and milliseconds."""
_MOST_SERIES = 24
_COLUMNS = 5
_WHOLE = (-math.inf, math.inf)
MARKS = {"nan": 0, "inf": 1, "-inf": -1}
"""The kinds of marks, as the browser knows them."""
_MOST_EARLIER = 40


@dataclass(frozen=True)
class Request:
    """What a chart asks for."""

    id: str
    metrics: list[str]
    range: tuple[float, float]
    """The first and the last step; infinite for all."""
    points: int
    """The most points of a line."""
    by_rank: bool
    """Whether to add the values of each rank."""
    earlier: str
    """The ID of an earlier job, whose values to add; empty if there is none."""
    for_export: bool

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Request:
        low, high = message["range"] or _WHOLE
        return cls(
            id=str(message["id"]),
            metrics=[str(name) for name in message["metrics"]][:_MOST_METRICS],
            range=(float(low), float(high)),
            points=int(message["points"]),
            by_rank=bool(message["ranks"]),
            earlier=str(message["earlier"]),
            for_export=bool(message["export"]),
        )


@dataclass(frozen=True)
class EarlierRequest:
    """A chart asks for the earlier jobs."""

    id: str


class ChartDetails:
    """The answers to the enlarged charts of one job."""

    commands: tuple[str, ...] = ("chart", "earlier")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._series: dict[tuple[str, str], MetricSeries] = {}
        """By the ID of an earlier job, or an empty string, and the metric."""
        self._pacer = Pacer(0.0, _READING_SHARE)

    def parse(self, message: Mapping[str, Any]) -> Request | EarlierRequest:
        return EarlierRequest(message["id"]) if message["cmd"] == "earlier" else Request.parse(message)

    def is_answering(self, question: Request | EarlierRequest) -> bool:
        return True

    def answer(self, question: Request | EarlierRequest, *, at_once: bool) -> Reply | None:
        if not (at_once or self._pacer.is_due()):
            return None
        with self._pacer:
            return self._answer(question, math.inf if at_once else time.monotonic() + _SLICE)

    def _answer(self, request: Request | EarlierRequest, deadline: float) -> Reply | None:
        if isinstance(request, EarlierRequest):
            return Reply(EarlierReply(id=request.id, jobs=earlier_jobs(self._job)))
        known = self._job.charts.names
        jobs = ["", request.earlier] if request.earlier else [""]
        wanted = [(job, name) for job in jobs for name in request.metrics if name in known]
        try:
            series = {key: self._of(*key) for key in wanted if key[0] or not self._is_kept(request)}
            if not all(each.read(deadline) for each in series.values()):
                return None
        except JobLostError as error:
            return Reply(ChartReply(id=request.id, pause=_AFTER_PROBLEM, problem=str(error), tables=[]))
        return self._reply(request, wanted, series)

    def _is_kept(self, request: Request) -> bool:
        """Whether the job keeps what is asked for, so that no report has to be read."""
        is_whole = request.range == _WHOLE and not request.by_rank and not request.for_export
        return is_whole and len(self._job.ranks) >= _MANY_RANKS

    def _of(self, job: str, name: str) -> MetricSeries:
        series = self._series.get((job, name))
        if series is None:
            feed = feed_of(job) if job else ReportFeed(self._job.report_log)
            series = MetricSeries(name, feed)
        self._series.pop((job, name), None)
        self._series[job, name] = series  # the last in order is the one that was used last
        while len(self._series) > _MOST_SERIES:
            del self._series[next(iter(self._series))]
        return series

    def _reply(
        self, request: Request, wanted: Sequence[tuple[str, str]], series: Mapping[tuple[str, str], MetricSeries]
    ) -> Reply:
        began = time.thread_time()
        points, first = self._points(request, len(wanted) or 1), self._job.ranks[0].rank
        described, columns = [], []
        for job, name in wanted:
            known = series.get((job, name))
            if known is None:
                table = table_of_drawing(self._drawing(name, MOST_BINS))
            else:
                table = table_of_series(known, math.inf if job else self._settled(name), request.range, points)
            ranks = [first + index for index in table.by_rank] if request.by_rank and not job else []
            described.append(table.described(job, name, ranks))
            columns += table.columns(with_ranks=bool(ranks))
        numbers = b"".join(column.tobytes() for column in columns)
        missing = [name for job, name in wanted if job and not series[job, name].ranks]
        problem = f"the earlier job has not reported {', '.join(missing)}" if missing else ""
        pause = max(_SHORTEST_PAUSE, (time.thread_time() - began) / _SHARE, len(numbers) / _RATE)
        return Reply(ChartReply(id=request.id, pause=1000 * pause, problem=problem, tables=described), numbers)

    def _points(self, request: Request, tables: int) -> int:
        """The most points of a line."""
        ranks = len(self._job.ranks)
        if request.for_export:
            budget = _MOST_EXPORTED // ((_COLUMNS + ranks) * tables)
        else:
            columns = _COLUMNS + (ranks if request.by_rank else 0)
            budget = min(_MOST_NUMBERS // (columns * tables), _MOST_BINS // (ranks * tables))
        return max(_FEWEST_POINTS, min(request.points, budget))

    def _settled(self, name: str) -> float:
        """The last step that every rank has reported."""
        bins = self._drawing(name, 4).bins
        return bins[-1].last if bins else -math.inf

    def _drawing(self, name: str, bins: int) -> Drawing:
        return progress.metric(self._job, name, bins)


@dataclass(frozen=True)
class Table:
    """What a chart shows of one metric."""

    by_step: bool
    extent: tuple[float, float]
    """The first and the last step of the whole run."""
    bins: Bins
    by_rank: dict[int, Bins] = field(default_factory=dict)
    """By the rank's index in the job."""

    def described(self, job: str, name: str, ranks: list[int]) -> ChartTable:
        """What the browser needs to know about the columns.

        Args:
            job: The ID of an earlier job; empty for the panel's own.
            name: The metric.
            ranks: The ranks that have a column.
        """
        return {
            "job": job,
            "metric": name,
            "size": len(self.bins),
            "ranks": ranks,
            "marks": [(mark.x, MARKS[mark.kind]) for values in self.bins.values() for mark in values.marks()],
            "by_step": self.by_step,
            "extent": self.extent if self.extent[0] <= self.extent[1] else (0.0, 0.0),
        }

    def columns(self, *, with_ranks: bool) -> list[array[float]]:
        """The first and the last step of each bin, the mean, the minimum, the maximum, and the mean of each rank."""
        spreads = [values.spread() for values in self.bins.values()]
        found = [
            array("d", [values.first for values in self.bins.values()]),
            array("d", [values.last for values in self.bins.values()]),
            array("d", [spread.mean for spread in spreads]),
            array("d", [spread.low for spread in spreads]),
            array("d", [spread.high for spread in spreads]),
        ]
        if with_ranks:
            for bins in self.by_rank.values():
                found.append(array("d", [bins[at].finite_mean if at in bins else math.nan for at in self.bins]))
        return found


def table_of_drawing(drawing: Drawing) -> Table:
    """The whole run, as the job keeps it."""
    extent = (drawing.bins[0].first, drawing.bins[-1].last) if drawing.bins else (0.0, 0.0)
    return Table(drawing.by_step, extent, dict(enumerate(drawing.bins)))


def table_of_series(series: MetricSeries, end: float, wanted: tuple[float, float], points: int) -> Table:
    """A range of steps, and a bin to each side, so that lines reach the edges of the chart.

    Args:
        series: The values.
        end: The last step to show.
        wanted: The range.
        points: The most points, give or take a few.
    """
    low, high = series.extent
    high = min(high, end)
    left, right = max(low, wanted[0]), min(high, wanted[1])
    if left > right:
        return Table(series.by_step, (low, high), {})
    width = width_of(left, right, points)
    by_rank = series.binned(left - width, min(high, right + width), width)
    return Table(series.by_step, (low, high), merged(by_rank.values()), by_rank)


def earlier_jobs(job: Job) -> list[EarlierJob]:
    """The other jobs of this user that have reported metrics: those of the same function first, newest first."""
    found: list[tuple[bool, EarlierJob]] = []
    for record in reversed(records.all_records()):
        if len(found) == _MOST_EARLIER:
            break
        if record.id == job.id or not _has_reports(record):
            continue
        try:
            summary = summarize(record)
        except JobLostError:
            continue  # written by another version of this package, or just removed
        label = f"{summary.title}, {date(summary.started)}, {counted(summary.ranks)}, {summary.status.value}"
        found.append((summary.name != job.name, {"id": summary.id, "label": label}))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def feed_of(job_id: str) -> Feed:
    """The feed_of of a job's reports.

    Raises:
        JobLostError: There is no such job. Also raised by the feed_of, if its reports can't be read.
    """
    try:
        tail = ReportTail(records.find(job_id, "").reports)
    except ConfigurationError as error:
        raise JobLostError(f"the earlier job has been removed: {error}") from error

    def read() -> Iterator[Entry]:
        try:
            yield from tail.read()
        except OSError as error:
            raise JobLostError(f"the reports of the earlier job can't be read: {error}") from error

    return read


def _has_reports(record: Record) -> bool:
    try:
        return record.reports.stat().st_size > 0
    except OSError:
        return False


class ReportFeed:
    """A feed of the reports of a log; see `metric_series.Feed`."""

    def __init__(self, log: ReportLog) -> None:
        self._log = log
        self._count = 0

    def __call__(self) -> Iterator[Entry]:
        """The reports that have come since the last call, which must have been iterated over to its end.

        Raises:
            JobLostError: They were in a file that is gone.
        """
        for entry in self._log.since(self._count):
            self._count += 1
            yield entry
