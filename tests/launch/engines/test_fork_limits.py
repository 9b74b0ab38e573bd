"""A server that the system allows no more processes: by a control group, or by what one user may have."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.server import forking
from notebook_accel.launch.server.warm_ranks import WarmRanks
from notebook_accel.launch.system import limits
from tests.launch.engines import calls
from tests.launch.engines.driver import Group, run
from tests.launch.own_processes import outlive
from tests.live_notebook import wait_until

LIMITED = re.compile(
    r"can't be started: Resource temporarily unavailable: .*(pids\.max|ulimit -u).* or raise the limit"
)


@pytest.fixture(scope="module")
def engine() -> Iterator[ServerEngine]:
    found = ServerEngine("fork")
    yield found
    found.close()


@contextlib.contextmanager
def no_more_processes(pid: int) -> Iterator[Callable[[], int] | None]:
    """Allows a process no more children; gives what counts how often it was refused one, if anything does."""
    group = next(filter(None, map(_control_group, ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"))), None)
    if group is not None:
        (group / "pids.max").write_text("1")
        (group / "cgroup.procs").write_text(str(pid))
        try:
            yield lambda: int((group / "pids.events").read_text().split()[1])
        finally:
            (group.parent / "cgroup.procs").write_text(str(pid))
            wait_until(lambda: not (group / "cgroup.procs").read_text())
            group.rmdir()
        return
    if not os.geteuid():
        pytest.skip("the superuser is limited by control groups alone, and none can be made here")
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NPROC, (1, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
    try:
        yield None
    finally:
        resource.prlimit(pid, resource.RLIMIT_NPROC, (soft, hard))


def _control_group(home: str) -> Path | None:
    group = Path(home) / f"notebook-accel-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return None
    if (group / "pids.max").exists():
        return group
    group.rmdir()
    return None


@contextlib.contextmanager
def a_running_job(engine: ServerEngine, folder: Path) -> Iterator[int]:
    """One that must go on; gives its server's process."""
    with Group(engine) as group:
        group.call(calls.wait_unless_told, str(folder / "begun"))
        wait_until((folder / "begun").exists)
        yield psutil.Process(group.wait_for_hello()[0]).ppid()
        group.ranks.signal(0, signal.SIGINT)
        group.end()
        assert group.value(0) == "saved"


def spares_of(server: int, ranks: int) -> bool:
    """Whether there are spares beside the store and so many ranks."""
    return len(psutil.Process(server).children()) > 1 + ranks


def test_a_spare_that_cannot_be_forked_ends_no_job(engine: ServerEngine, tmp_path: Path) -> None:
    """Long as the first of the file: it waits for a server, which imports torch."""
    with a_running_job(engine, tmp_path) as server:
        wait_until(lambda: spares_of(server, 1))
        with no_more_processes(server) as refused:
            assert run(engine, os.getppid) == [server]  # on a spare, which is to be replaced
            if refused is not None:
                wait_until(refused)
        assert run(engine, calls.rank, size=3) == [0, 1, 2]


def test_ranks_that_cannot_be_forked_fail_alone_and_name_the_limit(engine: ServerEngine, tmp_path: Path) -> None:
    with a_running_job(engine, tmp_path) as server:
        with no_more_processes(server):
            with pytest.raises(LaunchError) as raised, Group(engine, 12) as group:  # more than there are spares
                group.wait_for_exits()
            assert LIMITED.search(str(raised.value)), raised.value
            assert str(raised.value).startswith("rank ")
        assert run(engine, os.getppid, size=3) == [server] * 3


def test_a_store_that_cannot_be_forked_fails_the_launch_alone(engine: ServerEngine, tmp_path: Path) -> None:
    with a_running_job(engine, tmp_path) as server:
        first = min(psutil.Process(server).children(), key=lambda child: child.create_time())
        assert os.getsid(first.pid) == os.getsid(server)  # the store, which is no session of its own
        with no_more_processes(server):
            first.kill()
            assert not outlive([first.pid])
            with pytest.raises(LaunchError, match="the ranks' rendezvous") as raised, Group(engine) as group:
                group.wait_for_exits()
            assert LIMITED.search(str(raised.value)), raised.value
        assert run(engine, calls.reduce, size=2) == [3.0, 3.0]


def test_spares_that_are_refused_are_wanted_again_by_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(forking, "fork", refuse)
    spares = WarmRanks(lambda *_: None, 2)
    assert spares.are_too_few
    spares.add()
    assert not spares.are_too_few
    spares.expect(3)
    assert spares.are_too_few


@pytest.mark.parametrize(("strict", "why"), [("2\n", "vm.overcommit_memory=2"), ("0\n", "there is no memory left")])
def test_memory_that_is_refused_is_told(strict: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OVERCOMMIT", tmp_path / "overcommit_memory")
    limits.OVERCOMMIT.write_text(strict)
    said = limits.explain_refusal(OSError(errno.ENOMEM, "Cannot allocate memory"))
    assert said.startswith("Cannot allocate memory: ")
    assert why in said
    assert "free memory" in said


def test_open_files_that_are_too_many_are_told_with_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (70, 70))
    said = limits.explain_refusal(OSError(errno.EMFILE, "Too many open files"))
    assert said.startswith("Too many open files: a process may have 70 (ulimit -n). Launch fewer ranks, ")
    assert "ulimit -Hn" in said
