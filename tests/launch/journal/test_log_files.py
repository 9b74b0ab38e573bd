"""The log of a job: what is found in it, and what its files are on a disk with limits."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from notebook_accel.launch.job import output_log
from notebook_accel.launch.job.job import Job
from notebook_accel.launch.job.output_log import ERROR, WARNING, LogFilter, LogScan, OutputLog
from notebook_accel.launch.journal import log_files
from notebook_accel.launch.journal.log_files import LogFiles
from tests.launch.journal.test_writing import full_disk


@pytest.fixture
def files(tmp_path: Path) -> LogFiles:
    return LogFiles(tmp_path)


def found(log: OutputLog, matching: LogFilter | None = None) -> list[str]:
    scan = LogScan(log, matching or LogFilter())
    assert scan.run(math.inf)
    return [line.text for line in scan.lines]


def test_lines_are_found_in_memory_and_in_files(files: LogFiles) -> None:
    log = OutputLog()
    log.add(0, "stdout", 0.5, ["first", "\x1b[31mWARNING: hot\x1b[0m"])
    log.save(files)
    log.add(1, "stderr", 1.5, ["Traceback (most recent call last):", "ValueError: é"])
    assert found(log) == ["first", "\x1b[31mWARNING: hot\x1b[0m", "Traceback (most recent call last):", "ValueError: é"]
    assert found(log, LogFilter(rank=1, text="value")) == ["ValueError: é"]
    assert found(log, LogFilter(stream="stdout")) == ["first", "\x1b[31mWARNING: hot\x1b[0m"]
    assert found(log, LogFilter(level=WARNING, text="hot")) == ["\x1b[31mWARNING: hot\x1b[0m"]
    assert len(found(log, LogFilter(level=ERROR))) == 2
    follower = OutputLog()
    follower.follow(files)
    assert len(found(follower)) == 2
    log.save(files)
    assert found(follower) == found(log)


def test_pages_of_a_log_fit_together(files: LogFiles) -> None:
    log = OutputLog()
    texts = [f"{'long' * (30_000 if number == 70 else 1)} {number}" for number in range(200)]
    for text in texts:
        log.add(3, "stdout", 0, [text])
    log.save(files)
    pages: list[str] = []
    before = None
    while True:
        scan = LogScan(log, LogFilter(), before, most=7)
        scan.run(math.inf)
        pages = [line.text for line in scan.lines] + pages
        before = scan.position
        if not scan.has_more:
            break
    assert pages == texts
    whole, after = "", 0
    while True:
        text, end = output_log.part(log, None, after)
        if end == after:
            break
        whole, after = whole + text, end
    assert whole == "".join(f"[3] {text}\n" for text in texts)


def test_a_torn_or_damaged_line_is_passed_over(files: LogFiles, tmp_path: Path) -> None:
    log = OutputLog()
    log.add(0, "stdout", 0, ["whole"])
    log.save(files)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b"not a line\n\xff\n0 o 5 good\n0 o 5 to")
    follower = OutputLog()
    follower.follow(files)
    assert found(follower) == ["whole", "good"]
    before = LogScan(follower, LogFilter())
    file.write_bytes(file.read_bytes() + b"rn\n")
    scan = LogScan(follower, LogFilter(), until=before.end)
    assert scan.run(math.inf)
    assert [line.text for line in scan.lines] == ["torn"]


def test_the_oldest_lines_are_removed_when_a_log_is_too_large(
    files: LogFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "LIMIT", 10_000)
    monkeypatch.setattr(log_files, "FILE_SIZE", 1000)
    log = OutputLog()
    for number in range(1000):
        log.add(0, "stdout", 0, [f"line {number:04} {'x' * 80}"])
        log.save(files)
    lines = found(log)
    assert lines[-1].startswith("line 0999")
    assert len(lines) > 80
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 12_000
    assert {file.stat().st_mode & 0o077 for file in tmp_path.iterdir()} == {0}


def test_whoever_follows_a_log_sees_what_is_added_also_in_another_file(
    files: LogFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, follower = OutputLog(), OutputLog()
    follower.follow(LogFiles(tmp_path))
    for text in ("first", "second"):
        writer.add(0, "stdout", 0, [text])
        writer.save(files)
        assert found(follower)[-1] == found(writer)[-1] == text
    monkeypatch.setattr(log_files, "FILE_SIZE", 1)
    writer.add(0, "stdout", 0, ["in another file"])
    writer.save(files)
    assert len(list(tmp_path.iterdir())) == 2
    assert found(follower) == found(writer) == ["first", "second", "in another file"]


def test_a_full_disk_leaves_no_half_a_line(files: LogFiles) -> None:
    log = OutputLog()
    log.add(0, "stdout", 0, ["before"])
    log.save(files)
    log.add(0, "stdout", 0, ["x" * 1000])
    with full_disk(room=files.extent()[1] + 20), pytest.raises(OSError, match="large"):
        log.save(files)
    assert [text[:6] for text in found(log)] == ["before", "xxxxxx"]
    log.save(files)
    assert [text[:6] for text in found(log)] == ["before", "xxxxxx"]


def test_a_log_that_is_gone_is_said_to_be(files: LogFiles, tmp_path: Path) -> None:
    job = Job("train", 0, 1)
    job.output_log.add(0, "stdout", 0, ["a"])
    job.output_log.save(files)
    scan = LogScan(job.output_log, LogFilter())
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(OSError, match="no longer in"):
        scan.run(math.inf)
    assert job.log() == ""


def test_without_files_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notebook_accel.launch.job.output_log.MOST_IN_MEMORY", 1000)
    log = OutputLog()
    for number in range(100):
        log.add(0, "stdout", 0, [f"{number} {'x' * 50}"])
    assert log.unsaved <= 1000
    assert found(log)[-1].startswith("99 ")
