"""Answers the logs that are open in a panel: the last lines, new ones as they come, earlier ones, and the whole text.

A log asks, and an answer has a bounded number of lines. A question about new lines waits until there are some, so that
an open log costs nothing while the ranks write nothing. A search takes part of the time of the thread that draws.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from notebook_accel.launch.job import output_log
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.output_log import LogFilter, LogLine, LogScan
from notebook_accel.panel.pacing import Pacer
from notebook_accel.panel.panel_model import LogLineRow, LogReply, LogTextReply
from notebook_accel.panel.questions import Reply

MOST_LINES = 1000
LONGEST_LINE = 4000
"""Characters of a line that are shown; the downloaded text has all of them."""
_MOST_BYTES, MOST_NEW_BYTES = 2**18, 2**16
"""Of an answer, and of one with new lines, of which there may be several a second."""
_INTERVAL, _SHARE, _RATE = 0.25, 0.02, 60_000
"""Of answers with new lines: the shortest time between two, their share of the thread's time, and bytes a second."""
_TEXT_INTERVAL, _TEXT_RATE = 0.1, 400_000
"""Of the text that is downloaded; Jupyter's server drops what comes faster than a megabyte a second."""
_SLICE, _SEARCH_SHARE = 0.03, 0.4
"""Seconds of a search at once, and its share of the thread's time."""


@dataclass
class _Question:
    """Lines that match a filter: the last ones, those before a position, or those that come after one."""

    id: str
    matching: LogFilter
    before: int | None
    after: int | None
    scan: LogScan | None = None

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> _Question:
        return cls(
            id=str(message["id"]),
            matching=LogFilter(
                rank=_number(message["rank"]),
                stream=str(message["stream"]),
                level=int(message["level"]),
                text=str(message["text"]).lower(),
            ),
            before=_number(message["before"]),
            after=_number(message["after"]),
        )


@dataclass
class _TextQuestion:
    """The next part of the text of a rank, or of all ranks."""

    id: str
    rank: int | None
    after: int


class LogRequests:
    """The answers to the open logs of one job."""

    commands: tuple[str, ...] = ("log", "log_text")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._search_pacer = Pacer(0.0, _SEARCH_SHARE)
        self._new_pacer = Pacer(_INTERVAL, _SHARE, _RATE)
        self._text_pacer = Pacer(_TEXT_INTERVAL, _SEARCH_SHARE, _TEXT_RATE)

    def parse(self, message: Mapping[str, Any]) -> _Question | _TextQuestion:
        if message["cmd"] == "log_text":
            return _TextQuestion(str(message["id"]), _number(message["rank"]), int(message["after"]))
        return _Question.parse(message)

    def is_answering(self, question: _Question | _TextQuestion) -> bool:
        return isinstance(question, _TextQuestion) or question.after is None or question.scan is not None

    def answer(self, question: _Question | _TextQuestion, *, at_once: bool) -> Reply | None:
        try:
            return self._answer(question, at_once)
        except OSError as error:
            return _refusal(question, f"The log can't be read: {error}")

    def _answer(self, question: _Question | _TextQuestion, at_once: bool) -> Reply | None:
        if isinstance(question, _TextQuestion):
            return self._text(question, at_once)
        follows = question.after is not None
        pacer = self._new_pacer if follows and question.scan is None else self._search_pacer
        if not at_once and not pacer.is_due():
            return None
        if follows and question.scan is None and self._job.output_log.extent()[1] <= (question.after or 0):
            return None
        if question.scan is None:
            most = MOST_NEW_BYTES if follows else _MOST_BYTES
            log, until = self._job.output_log, question.after or 0
            question.scan = LogScan(log, question.matching, question.before, until, MOST_LINES, most)
        with self._search_pacer:
            is_over = question.scan.run(math.inf if at_once else time.monotonic() + _SLICE)
        if not is_over:
            return None
        scan, question.scan = question.scan, None
        if follows and not scan.lines:
            question.after = scan.end  # what is new doesn't match
            with self._new_pacer:
                return None
        with self._new_pacer:
            self._new_pacer.sent(scan.size)
            return _of(question, scan)

    def _text(self, question: _TextQuestion, at_once: bool) -> Reply | None:
        if not at_once and not self._text_pacer.is_due():
            return None
        with self._text_pacer:
            text, end = output_log.part(self._job.output_log, question.rank, question.after)
            first, last = self._job.output_log.extent()
            content = text.encode()
            self._text_pacer.sent(len(content))
        return Reply(LogTextReply(id=question.id, end=end, first=first, last=last, problem=""), content)


def _of(question: _Question, scan: LogScan) -> Reply:
    lines = scan.lines
    return Reply(
        LogReply(
            id=question.id,
            first=scan.position,
            end=scan.end,
            more=scan.has_more,
            gap=question.after is not None and scan.position > question.after,
            problem="",
            lines=[_row(line) for line in lines],
        )
    )


def _row(line: LogLine) -> LogLineRow:
    text = line.text if len(line.text) <= LONGEST_LINE else f"{line.text[:LONGEST_LINE]}…"
    return (line.position, line.rank, int(line.stream == "stderr"), line.at, line.level, text)


def _refusal(question: _Question | _TextQuestion, problem: str) -> Reply:
    if isinstance(question, _TextQuestion):
        return Reply(LogTextReply(id=question.id, end=question.after, first=0, last=0, problem=problem))
    return Reply(LogReply(id=question.id, first=0, end=0, more=False, gap=False, problem=problem, lines=[]))


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
