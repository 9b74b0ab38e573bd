"""What a launch gives back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from notebook_accel import notebook_launcher
from tests.launch.own_processes import wait_until


def answer_after(file: str) -> int:
    """Rank 0 answers once a file is there, the others at once."""
    rank = int(os.environ["RANK"])
    while rank == 0 and not os.path.exists(file):
        time.sleep(0.01)
    return rank


def test_values_are_in_the_order_of_the_ranks_whichever_answers_first(tmp_path: Path) -> None:
    job = notebook_launcher(answer_after, (str(tmp_path / "file"),), 3, device="cpu", block=False)
    assert wait_until(lambda: all(job.ranks[rank].returned for rank in (1, 2)), 60)
    assert not job.ranks[0].returned
    (tmp_path / "file").touch()
    assert job.result() == [0, 1, 2]
