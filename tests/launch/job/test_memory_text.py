"""How an error says what held the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_accel.events import (
    Exited,
    Failed,
    Frame,
    Heartbeat,
    LargestArrays,
    LiveArray,
    MemoryPeaks,
    MemorySnapshot,
    OutOfMemory,
    Phase,
    PhaseChanged,
    Raised,
)
from notebook_accel.launch.job import describe, rank_error, resources
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.rank_state import MemoryHistory
from notebook_accel.launch.journal.writing import Journal

GB = 2**30
ARRAYS = [
    LiveArray("history", "cpu", 3 * GB, "120 tensors and arrays", Frame("/home/train.py", 4, "train", "history = []")),
    LiveArray("", "cpu", GB, "37 tensors and arrays"),
]


def failed(job: Job, rank: int, device: str, note: str = "") -> None:
    chain = [Raised("MemoryError", "MemoryError", [Frame("/home/train.py", 9, "train", "load()")])]
    job.apply(rank, Failed(chain, 1.0, out_of_memory=OutOfMemory(device, ARRAYS, note)))


def test_an_exception_names_the_arrays_and_the_history_and_ranks_that_fail_alike_stay_one() -> None:
    job = Job("train", 0, 2)
    for rank in range(2):
        for second in range(20):
            job.apply(rank, Heartbeat((second + rank) * GB // 2, at=100.0 + second))
        failed(job, rank, "cpu")
    text = str(rank_error.error(job.ranks, oom_killed=False))
    assert text.startswith("both ranks raised MemoryError")
    assert (
        "\n\nThe largest tensors and arrays were:\n"
        "    3.0 GB  history: 120 tensors and arrays, assigned at /home/train.py line 4: history = []\n"
        "    1.0 GB  without a name in these frames: 37 tensors and arrays\n\n"
        "Its memory over 19 s: 0 MB, 1.5 GB, 3.5 GB, 5.5 GB, 7.5 GB, 9.5 GB.\n\n"
        "What helps: fewer ranks"
    ) in text


def test_a_rank_that_was_killed_has_what_it_held_when_it_had_grown_large() -> None:
    job = Job("train", 0, 1)
    job.apply(0, Heartbeat(GB, at=1.0))
    job.apply(0, Heartbeat(4 * GB, at=3.0))
    job.apply(0, LargestArrays(ARRAYS, 3 * GB))
    job.apply(0, Exited(None, 9))
    text = str(rank_error.error(job.ranks, oom_killed=True))
    assert "Its memory over 2.0 s: 1.0 GB, 4.0 GB." in text
    assert "When it held 3.0 GB, the largest tensors and arrays were:\n    3.0 GB  history" in text
    assert "What helps: fewer ranks" in text


def test_the_snapshot_of_a_device_is_saved_with_the_job_and_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path))
    job = Job("train", 0, 2)
    Journal(job)
    job.apply(1, MemorySnapshot([b"pick", b"led"]))
    failed(job, 1, "cuda", "To see which lines made the tensors, call this")
    path = Path(job.ranks[1].snapshot)
    assert (path.name, path.read_bytes()) == ("memory-rank1.pickle", b"pickled")
    assert path.stat().st_mode & 0o077 == 0
    text = str(rank_error.error(job.ranks, oom_killed=False))
    assert f"A snapshot of the device's memory is in {path}: open it at https://docs.pytorch.org/memory_viz." in text
    assert "To see which lines made the tensors, call this." in text
    assert "What helps: smaller batches" in text


def test_the_most_memory_of_each_phase_is_told_while_the_job_runs_and_at_its_end() -> None:
    job = Job("train", 0, 1)
    job.apply(0, Heartbeat(GB))
    job.apply(0, MemoryPeaks({"loading": GB, "backward": 3 * GB, "rest": 2 * GB}, {"backward": 5 * GB}))
    [state] = job.ranks
    assert resources.facts(state) == {
        "peak in loading": "1.0 GB",
        "peak in backward": "3.0 GB, GPU 5.0 GB",
        "peak in the rest": "2.0 GB",
    }
    assert describe.load(state) == "1.0 GB"
    job.apply(0, PhaseChanged(Phase.DONE))
    assert describe.load(state) == "1.0 GB, at most 3.0 GB in backward"


def test_a_long_history_keeps_its_peaks_in_few_points() -> None:
    history = MemoryHistory()
    for tenth in range(10_000):
        history.add(1 + tenth / 10, 7 if tenth == 5003 else tenth % 3)
    seconds, points = history.last()
    assert len(history.points) < 32
    assert max(value for _, value in history.points) == 7
    assert (len(points) >= 4, round(seconds)) == (True, 1000)
    assert history.points[-1][0] - history.points[-2][0] < 3  # more of the last seconds
    again = MemoryHistory()
    for at, resident in history.points:
        again.add(at, resident)
    assert again == history
    assert MemoryHistory().last() == (0.0, [])
