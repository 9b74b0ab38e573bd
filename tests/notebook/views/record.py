"""Makes the recorded job that `test_replay` draws again: `python -m tests.notebook.views.record`.

With `--draw`, draws the recorded job anew and keeps that: after a change of how jobs look.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from notebook_accel import notebook_launcher
from notebook_accel.events import Event, Metrics, Reports
from notebook_accel.launch.driver import launch
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import records
from notebook_accel.launch.journal.state_file import decode, encode
from notebook_accel.panel import html_page

RECORDED = Path(__file__).parent / "recorded"


def train() -> None:
    import time

    from tqdm import tqdm

    from notebook_accel import report

    rank = int(os.environ["RANK"])
    print(f"rank {rank} trains")
    for epoch in tqdm(range(2), desc="epoch"):
        for step in tqdm(range(40), desc="batch", leave=False):
            time.sleep(0.02 + 0.01 * (rank == 2))
            report({"val/loss": 2 / (1 + step + 40 * epoch) + rank / 10}, step=40 * epoch + step)
        if rank == 1 and epoch:
            raise ValueError("<no> more data")


def record() -> None:
    """Runs the job, and keeps its events but for what names this machine."""
    lines: list[bytes] = []

    class Heard(Job):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            lines.append(encode(None, self.launched))
            self.listen(self._keep)

        def _keep(self, rank: int | None, event: Event) -> None:
            if isinstance(event, Reports):
                found: list[Event] = [Metrics(row.values, row.step, row.at) for row in event.rows()]
            else:
                found = [event]
            lines.extend(encode(rank, each) for each in found)

    with tempfile.TemporaryDirectory() as state:
        os.environ[records.VARIABLE] = state
        launch.Job = Heard  # type: ignore[misc]
        try:
            notebook_launcher(train, num_processes=4)
        except Exception as error:
            print(error)
    text = b"".join(lines).decode().replace(f'"host":"{socket.gethostname()}"', '"host":"host"')
    (RECORDED / "events.jsonl").write_text(text.replace(str(Path(__file__).parents[3]) + os.sep, ""))


def steps() -> Iterator[Job]:
    """The job, which is always the same object, after each of its events."""
    entries = list(filter(None, map(decode, (RECORDED / "events.jsonl").read_bytes().splitlines())))
    job = Job("", 0, 0)
    job.restore(entries[:1])
    yield job
    for rank, event in entries[1:]:
        job.apply(rank, event)
        yield job


def replay() -> Job:
    """The job after all of its events."""
    *_, job = steps()
    return job


def draw() -> None:
    """Keeps how the job is drawn."""
    bundle = html_page.bundle(replay())
    (RECORDED / "job.html").write_text(bundle["text/html"] + "\n")
    (RECORDED / "job.txt").write_text(bundle["text/plain"] + "\n")


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    if "--draw" not in sys.argv:
        record()
    draw()
