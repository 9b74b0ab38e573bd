"""Makes the recorded job that `test_replay` draws again: `python -m tests.notebook.views.record`.

With `--draw`, draws the recorded job anew and keeps that: after a change of how jobs look.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from notebook_accel import notebook_launcher
from notebook_accel.launch.journal import records, writing
from notebook_accel.launch.journal.reading import replay
from notebook_accel.launch.journal.records import Record
from notebook_accel.notebook.views import static_views
from notebook_accel.owner import Owner

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
    """Runs the job, and keeps its journal but for what names this machine."""
    with tempfile.TemporaryDirectory() as state:
        os.environ[records.VARIABLE] = state
        writing.FIRST_WRITE = 0.0
        try:
            notebook_launcher(train, num_processes=4)
        except Exception as error:
            print(error)
        (made,) = records.all_records()
        text = made.journal.read_text().replace(f'"host":"{socket.gethostname()}"', '"host":"host"')
        text = text.replace(Owner.this().system, "system")
        (RECORDED / "journal.jsonl").write_text(text.replace(str(Path(__file__).parents[3]) + os.sep, ""))


def draw() -> None:
    """Keeps how the job is drawn."""
    bundle = static_views.draw_html(replay(Record(RECORDED)))
    (RECORDED / "job.html").write_text(bundle["text/html"] + "\n")
    (RECORDED / "job.txt").write_text(bundle["text/plain"] + "\n")


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    if "--draw" not in sys.argv:
        record()
    draw()
