"""`attach` where jobs can't be recorded; elsewhere see tests/kernel/test_attach.py."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from notebook_accel import attach, jobs, notebook_launcher
from notebook_accel.errors import ConfigurationError, JobLostError
from notebook_accel.launch.driver.attach import find
from notebook_accel.launch.journal import records, writing
from tests.launch.journal.cases import put_state


def test_a_job_that_is_not_recorded_is_found_where_it_was_launched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_folder = tmp_path / "file"
    no_folder.touch()
    monkeypatch.setenv(records.VARIABLE, str(no_folder))
    job = notebook_launcher(len, ("four",), num_processes=1, in_process=True, block=False, name="counted")
    assert job.result(60) == [4]
    capsys.readouterr()
    assert attach(job) is job
    assert "counted" in capsys.readouterr().out
    assert attach(job.id) is find(job.id) is job
    with pytest.raises(ConfigurationError):
        attach("another")
    last: Any = "10"
    with pytest.raises(ConfigurationError, match=r"log\(last='10'\): give the number of lines, 1 or more"):
        job.log(last=last)


def test_a_listed_job_is_found_as_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    job = notebook_launcher(len, ("four",), num_processes=1, in_process=True, block=False)
    assert job.result(60) == [4]
    (listed,) = jobs()
    assert attach(listed) is job


def test_a_job_that_has_just_begun_comes_before_those_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    notebook_launcher(len, ("four",), num_processes=1, in_process=True, name="before")
    monkeypatch.setattr(writing, "FIRST_WRITE", 3600.0)
    go = threading.Event()
    job = notebook_launcher(go.wait, (60,), num_processes=1, in_process=True, block=False, name="begun")
    try:
        capsys.readouterr()
        assert attach() is job
        assert "begun" in capsys.readouterr().out
        assert find() is job
    finally:
        go.set()
    assert job.result(60) == [True]
    assert attach().id == job.id


def test_a_job_whose_journal_is_damaged_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(records.VARIABLE, str(tmp_path))
    job = notebook_launcher(len, ("four",), num_processes=1, in_process=True, block=False)
    assert job.result(60) == [4]
    damaged = records.find(job.id, "").path
    copied = damaged.with_name(damaged.name.replace(job.id, "ffffffffffff"))
    shutil.copytree(damaged, copied)
    put_state(records.Record(copied), b"{")
    with pytest.raises(JobLostError, match="job ffffffffffff can't be read: its journal has no valid first line"):
        attach("ffffffffffff")
