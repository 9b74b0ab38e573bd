import errno
import os
import resource
from pathlib import Path

import psutil
import pytest

from notebook_accel.errors import ConfigurationError, LaunchError
from notebook_accel.launch.plan import capacity
from notebook_accel.launch.system import limits


def test_so_many_ranks_as_are_usual_need_no_look() -> None:
    capacity.check(32, "forkserver", "")


def test_few_ranks_are_refused_where_a_process_may_open_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    there = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (there + 8, there + 8))
    capacity.check(1, "forkserver", "")
    with pytest.raises(LaunchError, match=r"open files in one process.*ulimit -Hn"):
        capacity.check(2, "forkserver", "")


@pytest.mark.parametrize("engine", ["forkserver", "spawn"])
def test_a_number_beyond_reach_is_refused_with_what_stands_in_the_way(engine: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^1000000 ranks \(from here\) are more than this .*Use at most \d+"):
        capacity.check(1_000_000, engine, " (from here)")


def test_the_scarcest_resource_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(ConfigurationError, match=r"may open \d+ more files.*Use at most 2\d\d"):
        capacity.check(300, "forkserver", "")
    monkeypatch.undo()
    gigabyte = psutil.virtual_memory()._replace(available=10**9)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: gigabyte)
    with pytest.raises(ConfigurationError, match=r"1.0 GB of memory are free.*Use at most 100"):
        capacity.check(101, "forkserver", "")


def test_a_control_group_limits_memory_and_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(limits, "cgroups", lambda: [tmp_path, tmp_path / "none"])
    (tmp_path / "memory.max").write_text("500000000\n")
    with pytest.raises(ConfigurationError, match=r"0\.5 GB of memory"):
        capacity.check(51, "forkserver", "")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "pids.max").write_text("100\n")
    (tmp_path / "pids.current").write_text("20\n")
    with pytest.raises(ConfigurationError, match=r"80 more processes and threads .*Use at most 40"):
        capacity.check(41, "forkserver", "")
    capacity.check(40, "forkserver", "")


def test_many_ranks_are_refused_where_not_even_the_open_files_can_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(ConfigurationError, match="may open 0 more files"):
        capacity.check(33, "forkserver", "")
