"""Which pages draw jobs from disk, and in which cells."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from notebook_accel.launch.job.job import Job
from notebook_accel.launch.journal import pages
from notebook_accel.launch.journal.writing import Journal

PAGE, OTHER = "6f1c5a3e-0b1d-4c52-9a53-7b0c1c7f7f10", "0b1d4c52-9a53-4c52-9a53-7b0c1c7f7f11"


def test_a_kernel_knows_the_page_that_has_announced_itself_where_its_jobs_are(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages.announce(PAGE)
    assert (pages.draws_jobs(PAGE), pages.draws_jobs(OTHER), pages.draws_jobs("")) == (True, False, False)
    monkeypatch.setattr(pages, "FORMAT", pages.FORMAT + 1)  # the server has another version of this package
    assert not pages.draws_jobs(PAGE)
    monkeypatch.undo()
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(state.parent / "elsewhere"))
    assert not pages.draws_jobs(PAGE)


def test_an_id_is_no_path_and_an_old_announcement_is_removed(state: Path) -> None:
    for session in ("../../etc/passwd", "a", "x" * 100):
        with pytest.raises(ValueError, match=r".*"):
            pages.announce(session)
        assert not pages.draws_jobs(session)
    pages.announce(PAGE)
    long_ago = time.time() - 60 * 24 * 3600
    os.utime(state.parent / "pages" / PAGE, (long_ago, long_ago))
    pages.announce(OTHER)
    assert (pages.draws_jobs(PAGE), pages.draws_jobs(OTHER)) == (False, True)


def test_the_outputs_of_a_notebook_are_found_by_its_path(state: Path, job: Job) -> None:
    record = Journal(job).open()
    for notebook, cell in (("a.ipynb", "1"), ("a.ipynb", "2"), ("a.ipynb", "1"), ("b.ipynb", "1")):
        pages.note_output(record, notebook, cell)
    assert [(found, each.cell) for found, each in pages.outputs_of("a.ipynb")] == [(record, "1"), (record, "2")]
    with open(record.outputs, "a") as file:
        file.write("{")  # the disk was full
    assert [each.cell for _, each in pages.outputs_of("b.ipynb")] == ["1"]
    assert not list(pages.outputs_of("c.ipynb"))
