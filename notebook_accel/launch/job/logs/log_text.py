"""The lines of a job's log as text for the user: without codes for terminals, labeled if they are of several ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.job.logs.log_lines import LogLine, decode
from notebook_accel.launch.job.logs.log_scan import LogFilter, LogScan
from notebook_accel.launch.job.logs.output_log import OutputLog
from notebook_accel.launch.wire.terminal_codes import plain

PART = 2**18
"""Bytes of the log that are turned into text at once."""


def where_all_are(job: str) -> str:
    """Says where all lines of a job are: the end of a sentence."""
    return f"attach({job!r}).log(last=None) returns all lines"


def left_out(count: int, rest: str) -> str:
    """The line that stands for lines that are missing.

    Args:
        count: How many are missing.
        rest: The end of the sentence, such as that of `where_all_are`.
    """
    return f"… {count:,} line{'s are' if count > 1 else ' is'} left out here; {rest} …"


def last_lines(log: OutputLog, known: Sequence[int], rank: int | None, last: int | None) -> str:
    """The last lines of a job with the ranks that are known; see `Job.log`."""
    if rank is not None and rank not in known:
        raise ConfigurationError(f"log(rank={rank!r}): the job has the ranks {known[0]} to {known[-1]}")
    if last is not None and (not isinstance(last, int) or last < 1):
        raise ConfigurationError(f"log(last={last!r}): give the number of lines, 1 or more, or None for all lines")
    scan = LogScan(log, LogFilter(rank), most=last or 2**62, most_bytes=2**62)
    try:
        scan.run(math.inf)
    except OSError as error:
        raise JobLostError(f"the log of the job can't be read: {error}") from error
    return as_text(scan.lines, labeled=rank is None)


def as_text(lines: Iterable[LogLine], *, labeled: bool) -> str:
    """The lines, each with its newline."""
    return "".join(f"[{line.rank}] {plain(line.text)}\n" if labeled else f"{plain(line.text)}\n" for line in lines)


def part(log: OutputLog, rank: int | None, after: int) -> tuple[str, int]:
    """The text of the next part of the log, and its end; the end is `after` if there is no more.

    Args:
        log: The log.
        rank: The global rank; `None` for all, labeled.
        after: The position where to begin.

    Raises:
        OSError: The log can't be read.
    """
    first, end = log.extent()
    start, size = max(after, first), PART
    while True:
        data = log.read(start, min(end, start + size))
        whole = data[: data.rfind(b"\n") + 1]
        if whole or start + size >= end:
            break
        size *= 2  # the line is longer
    return as_text(_of(rank, start, whole), labeled=rank is None), (start + len(whole) if whole else after)


def _of(rank: int | None, start: int, data: bytes) -> Iterator[LogLine]:
    for stored in data.split(b"\n")[:-1]:
        if rank is None or stored.startswith(b"%d " % rank):
            line = decode(start, stored)
            if line is not None:
                yield line
        start += len(stored) + 1
