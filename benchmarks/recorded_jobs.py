"""Twenty jobs on disk, of which two of 64 ranks run: their events come as often as from so many ranks.

The journals are written as for any job, in NOTEBOOK_ACCEL_STATE, until standard input is closed.
"""

from __future__ import annotations

import select
import sys
import time

from notebook_accel.events import AttemptStarted, Bar, Hello, Metrics, Phase, PhaseChanged
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import writing
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.wire import constants

ENDED, RUNNING, RANKS = 18, 2, 64


def start(name: str, ranks: int) -> tuple[Job, Journal]:
    """A job that runs, and its journal."""
    job = Job(name, 0, ranks, f"{ranks} × GPU")
    journal = Journal(job)
    journal.open()
    job.apply(None, AttemptStarted(0))
    for rank in range(ranks):
        job.apply(rank, Hello(1, "host"))
        job.apply(rank, PhaseChanged(Phase.RUNNING))
    return job, journal


def report(job: Job, seconds: float) -> None:
    """What all ranks report at once: three bars and two metrics."""
    tenths = int(10 * seconds)
    for rank in range(len(job.ranks)):
        for bar, total in enumerate((2000, 20000, 200000)):
            n = (tenths * 10**bar * (100 + rank % 7) // 100) % total
            job.apply(rank, Bar(bar, n, total, "bar", rate=10.0, elapsed=seconds, depth=bar))
        job.apply(rank, Metrics({"loss": 1 / (1 + tenths), "accuracy": 1 - 1 / (1 + tenths)}, tenths))


def main() -> None:
    """Write until nobody listens."""
    # A busy machine would otherwise be written for less often, and the sidebar seem cheaper.
    writing.WRITE_INTERVAL, writing.WRITE_SHARE = 0.5, 1.0
    for number in range(ENDED):
        job, _ = start(f"ended_{number}", 4)
        for tenths in range(300):
            report(job, tenths / 10)
        job.finish(Status.DONE)
    running = [start(f"train_{number}", RANKS) for number in range(RUNNING)]
    print("ready", flush=True)
    began = sent = time.monotonic()
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        now = time.monotonic()
        for job, journal in running:
            if now - sent >= constants.report_interval(RANKS):
                report(job, now - began)
            journal.refresh()
        if now - sent >= constants.report_interval(RANKS):
            sent = now
    for job, _ in running:
        job.finish(Status.DONE)


if __name__ == "__main__":
    main()
