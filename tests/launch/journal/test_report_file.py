"""The file of a job's reports: what can be written and read of it if the disk is full or the file is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from notebook_accel.errors import JobLostError
from notebook_accel.events import Report, Reports
from notebook_accel.launch.journal.report_file import ReportFile, ReportTail
from tests.launch.journal.test_writing import full_disk

(SOME,) = Reports.pack([Report({"loss": 0.5}, 3, 1.0), Report({"loss": 0.25, "lr": 0.1}, None, 2.0)])


@pytest.fixture
def file(tmp_path: Path) -> ReportFile:
    return ReportFile(tmp_path / "reports")


def test_reports_are_read_as_they_were_written(file: ReportFile) -> None:
    file.append([(0, SOME), (1, SOME)])
    file.append([(1, SOME)])
    found = list(file.read())
    assert [rank for rank, _ in found] == [0, 1, 1]
    assert all(list(reports.rows()) == list(SOME.rows()) for _, reports in found)


def test_a_full_disk_leaves_no_half_a_report(file: ReportFile) -> None:
    file.append([(0, SOME)])
    size = file.path.stat().st_size
    with full_disk(room=size + 20), pytest.raises(OSError, match="large"):
        file.append([(1, SOME)])
    assert file.path.stat().st_size == size
    file.append([(1, SOME)])
    assert [rank for rank, _ in file.read()] == [0, 1]


def test_a_file_is_followed_up_to_a_position(file: ReportFile) -> None:
    file.append([(0, SOME)])
    tail = ReportTail(file.path)
    end = tail.size()
    file.append([(1, SOME)])
    assert [rank for rank, _ in tail.read(end)] == [0]
    assert [rank for rank, _ in tail.read()] == [1]
    assert list(tail.read()) == []


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_a_torn_end_is_left_out(file: ReportFile, cut: int) -> None:
    file.append([(0, SOME), (1, SOME)])
    file.path.write_bytes(file.path.read_bytes()[:-cut])
    assert [rank for rank, _ in file.read()] == [0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.replace(b'"reports"', b'"hello"  ', 1),
        lambda data: data.replace(b'"rank": 0', b'"rank":-1', 1),
        lambda data: data.replace(b'["loss"]', b'["loss",1]', 1),
        lambda data: b"\xff" * 8 + data,
    ],
)
def test_a_damaged_file_ends_where_it_is_damaged(file: ReportFile, damage: object) -> None:
    file.append([(0, SOME), (1, SOME)])
    file.path.write_bytes(damage(file.path.read_bytes()))  # type: ignore[operator]
    assert list(file.read()) == []


def test_a_file_that_is_gone_is_an_error(file: ReportFile) -> None:
    with pytest.raises(JobLostError, match="removed with the job's journal"):
        list(file.read())
