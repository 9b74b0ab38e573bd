"""Which running jobs a launch names, because they use its devices."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from notebook_accel.config import LaunchConfig
from notebook_accel.config.settings import Source
from notebook_accel.errors import ConfigurationError
from notebook_accel.launch.driver.launcher import BLOCKING
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.job_state import Status
from notebook_accel.launch.journal import marks, records
from notebook_accel.launch.journal.saved_launch import SavedLaunch
from notebook_accel.launch.journal.writing import Journal
from notebook_accel.launch.plan import conflicts
from notebook_accel.launch.plan.plan import Plan
from notebook_accel.owner import Owner
from tests.launch.journal.cases import put_state, state_of


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    monkeypatch.setattr(conflicts, "usable", lambda: 4)
    monkeypatch.setattr(conflicts, "GRACE", 0.0)


def a_plan(size: int, *devices: str) -> Plan:
    config = LaunchConfig()
    return Plan(
        config=config, size=size, device="cpu", backend="gloo", engine="forkserver", threads=1, device_ids=devices
    )


def running(name: str, size: int, devices: Sequence[str], *, owner: Owner | None = None, part_of: str = "") -> Job:
    job = Job(name, 0, size, devices=devices, part_of=part_of)
    Journal(job).open()
    if owner is not None:
        (record,) = [each for each in records.all_records() if each.id == job.id]
        _, _, rest = state_of(record).partition(b"\n")
        put_state(record, dataclasses.replace(record.head(), owner=owner).line() + rest)
        record.running.write_text(str(owner))
    return job


def test_jobs_on_the_cpu_count_once_there_are_more_ranks_than_cores() -> None:
    job = running("other", 2, ["cpu"])
    assert conflicts.notice(a_plan(2, "cpu"), "train") == ""
    assert re.fullmatch(
        r"other\(\) of this process also runs on the CPU on 2 ranks, for [0-9.]+ s: "
        rf"attach\('{job.id}'\)\.cancel\(\) stops it",
        conflicts.notice(a_plan(3, "cpu"), "train"),
    )


def test_a_job_on_other_devices_is_not_named() -> None:
    running("other", 64, ["GPU-1", "GPU-2"])
    assert conflicts.notice(a_plan(64, "cpu"), "train") == ""
    assert conflicts.notice(a_plan(2, "GPU-3"), "train") == ""
    assert "also runs on the same device on 64 ranks" in conflicts.notice(a_plan(2, "GPU-2", "GPU-3"), "train")
    assert "also runs on 2 of these GPUs on 64 ranks" in conflicts.notice(a_plan(2, "GPU-2", "GPU-1"), "train")


def test_a_job_of_the_same_function_is_named_even_if_there_are_cores_for_both() -> None:
    running("train", 1, ["cpu"])
    assert conflicts.notice(a_plan(1, "cpu"), "train").startswith(
        "train() of an earlier launch still runs here on 1 rank, for "
    )


def test_the_trials_of_one_sweep_are_not_named_to_each_other() -> None:
    running("train", 4, ["cpu"], part_of="one")
    trial = dataclasses.replace(a_plan(4, "cpu"), part_of="one")
    assert conflicts.notice(trial, "train") == ""
    for other in (a_plan(4, "cpu"), dataclasses.replace(trial, part_of="another")):
        assert "train() of an earlier launch still runs here" in conflicts.notice(other, "train")


def test_the_job_whose_rank_launches_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    around = running("train", 4, ["cpu"])
    assert around.id in conflicts.notice(a_plan(4, "cpu"), "train")
    monkeypatch.setenv("NOTEBOOK_ACCEL_JOB", around.id)
    assert conflicts.notice(a_plan(4, "cpu"), "train") == ""


def saving_to(folder: str) -> Job:
    job = Job("other", 0, 1, devices=["cpu"])
    Journal(job, saved=SavedLaunch(LaunchConfig(), folder, "other", BLOCKING, "", {}, "/")).open()
    return job


def test_a_launch_that_names_the_folder_in_which_a_job_saves_is_refused() -> None:
    id = saving_to("/runs/digits").id
    with pytest.raises(ConfigurationError) as refused:
        conflicts.refuse_shared_folder(a_plan(1, "cpu"), "/runs/digits")
    assert re.fullmatch(
        r"other\(\) of this process runs on 1 rank, for [0-9.]+ s, and saves its checkpoints in the same folder, "
        r"/runs/digits, so that each of the two would remove or continue those of the other\. To watch it, call "
        rf"attach\('{id}'\); to end it first, attach\('{id}'\)\.cancel\(\) and wait\(\); to run both, pass another "
        r"folder as checkpoint=",
        str(refused.value),
    )
    conflicts.refuse_shared_folder(a_plan(1, "cpu"), "/runs/others")
    conflicts.refuse_shared_folder(a_plan(1, "cpu"), "")
    together = dataclasses.replace(a_plan(1, "cpu"), config=LaunchConfig(num_nodes=2))
    conflicts.refuse_shared_folder(together, "/runs/digits")


def test_a_launch_waits_for_a_job_in_its_folder_that_is_just_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    job = saving_to("/runs/digits")
    monkeypatch.setattr(conflicts, "GRACE", 60.0)
    monkeypatch.setattr(time, "sleep", lambda _: job.finish(Status.CANCELLED))
    conflicts.refuse_shared_folder(a_plan(1, "cpu"), "/runs/digits")


@pytest.mark.parametrize(
    ("folder", "what"),
    [
        ("/runs/digits", "a loop over Accelerator.epochs is refused here while it trains"),
        ("s3://runs/digits", "each of the two may remove or continue those of the other"),
    ],
)
def test_a_launch_that_may_not_train_in_its_folder_names_the_job_that_does(folder: str, what: str) -> None:
    id = saving_to(folder).id
    of_every_launch = LaunchConfig(sources={"checkpoint_dir": Source("magic", "%accelerate --checkpoint-dir")})
    plan = dataclasses.replace(a_plan(1, "cpu"), config=of_every_launch)
    conflicts.refuse_shared_folder(plan, folder)
    assert conflicts.notice(plan, "train", folder).endswith(
        f"saves its checkpoints in the same folder, {folder}, so that {what}: attach('{id}').cancel() stops it, or "
        "pass another folder as checkpoint="
    )
    assert conflicts.notice(plan, "train", f"{folder}/others") == ""


def test_a_job_that_has_ended_is_not_named() -> None:
    running("train", 8, ["cpu"]).finish(Status.DONE)
    gone = dataclasses.replace(Owner.this(), began=1)
    running("train", 8, ["cpu"], owner=gone)
    assert conflicts.notice(a_plan(8, "cpu"), "train") == ""


def test_a_job_of_another_process_is_named_and_one_of_another_machine_is_not() -> None:
    running("train", 8, ["cpu"], owner=Owner.of(os.getppid()))
    assert "train() of another process also runs on the CPU on 8 ranks" in conflicts.notice(a_plan(8, "cpu"), "train")
    (record,) = records.all_records()
    marks.change(record, {"title": "baseline"})  # by its user, since
    assert "baseline of another process also runs on the CPU" in conflicts.notice(a_plan(8, "cpu"), "train")
    record.remove()
    running("train", 8, ["cpu"], owner=Owner(1, 1, "another machine"))
    assert conflicts.notice(a_plan(8, "cpu"), "train") == ""


def test_of_many_jobs_three_are_named() -> None:
    for number in range(5):
        running(f"work{number}", 4, ["cpu"])
    named = conflicts.notice(a_plan(4, "cpu"), "train").splitlines()
    assert [line[:4] for line in named[:3]] == ["work"] * 3
    assert named[3:] == ["and 2 other jobs: see jobs()"]
