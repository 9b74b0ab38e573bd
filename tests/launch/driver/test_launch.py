"""What a launch gives back."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from notebook_accel import RankError, notebook_launcher
from notebook_accel.launch.plan import conflicts
from notebook_accel.launch.show import console
from notebook_accel.launch.system import own_process
from tests.live_notebook import wait_until


def answer_after(file: str) -> int:
    """Rank 0 answers once a file is there, the others at once."""
    rank = int(os.environ["RANK"])
    while rank == 0 and not os.path.exists(file):
        time.sleep(0.01)
    return rank


def leave_a_thread(file: str) -> str:
    """Returns while a thread runs that ends once a file is there."""
    own_process.NOTICE_AFTER = 0.0
    threading.Thread(target=answer_after, args=(file,), name="uploads").start()
    return "returned"


def leave_an_exit_handler(file: str) -> str:
    """Returns while an exit handler is registered that ends once a file is there."""
    own_process.NOTICE_AFTER = 0.5  # the handler has begun then
    atexit.register(answer_after, file)
    return "returned"


def fail_beside_a_rank_that_heeds_no_signal(folder: str) -> None:
    """Rank 1 raises once rank 0 ignores signals."""
    if os.environ["RANK"] == "0":
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_IGN)
        Path(folder, os.environ["TORCHELASTIC_RESTART_COUNT"]).touch()
        threading.Event().wait()
    while not os.listdir(folder):
        time.sleep(0.01)
    raise ValueError("the cause")


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_stop_after_a_failure_neither_hides_it_nor_starts_the_ranks_again(restarts: int, tmp_path: Path) -> None:
    """Takes the time that other ranks have after a failure."""
    job = notebook_launcher(
        fail_beside_a_rank_that_heeds_no_signal,
        (str(tmp_path),),
        2,
        device="cpu",
        block=False,
        max_restarts=restarts,
    )
    wait_until(lambda: job.ranks[1].failed, 60)
    assert job.cancel()
    with pytest.raises(RankError, match="rank 1 of 2 raised ValueError: the cause"):
        job.result()
    assert os.listdir(tmp_path) == ["0"]


def test_values_are_in_the_order_of_the_ranks_whichever_answers_first(tmp_path: Path) -> None:
    job = notebook_launcher(answer_after, (str(tmp_path / "file"),), 3, device="cpu", block=False)
    wait_until(lambda: all(job.ranks[rank].returned for rank in (1, 2)), 60)
    assert not job.ranks[0].returned
    (tmp_path / "file").touch()
    assert job.result() == [0, 1, 2]


def test_launches_that_begin_at_once_with_one_folder_of_checkpoints_find_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[str] = []
    monkeypatch.setattr(console.current, "notice", notices.append)
    monkeypatch.setattr(conflicts, "refuse_shared_folder", lambda *_: None)
    monkeypatch.setattr(conflicts, "notice", lambda *_: "")  # each is planned before the other is recorded
    file, folder = str(tmp_path / "file"), str(tmp_path / "folder")
    both = [notebook_launcher(answer_after, (file,), 1, device="cpu", block=False, checkpoint=folder) for _ in range(2)]
    try:
        wait_until(lambda: any("in the same folder" in text for text in notices), 60)
    finally:
        (tmp_path / "file").touch()
    for job in both:
        job.result()
    named = [text for text in notices if "in the same folder" in text]
    assert all(any(f"attach('{job.id}').cancel()" in text for job in both) for text in named)


def test_a_rank_that_waits_for_a_thread_of_its_function_names_it(tmp_path: Path) -> None:
    job = notebook_launcher(leave_a_thread, (str(tmp_path / "file"),), 1, device="cpu", block=False)
    try:
        wait_until(lambda: "its process waits for 1 thread to end, too: uploads" in job.log(), 60)
    finally:
        (tmp_path / "file").touch()
    assert job.result() == ["returned"]


def test_a_rank_that_waits_for_an_exit_handler_of_its_function_shows_where_that_is(tmp_path: Path) -> None:
    job = notebook_launcher(leave_an_exit_handler, (str(tmp_path / "file"),), 1, device="cpu", block=False)
    try:
        wait_until(lambda: "in answer_after" in job.log(), 60)
    finally:
        (tmp_path / "file").touch()
    assert job.result() == ["returned"]
    assert "still runs an exit handler (atexit). An interrupt ends it. It is here:\n" in job.log()
    assert job.log().count('  File "') == 1
