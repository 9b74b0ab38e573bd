"""The base server: what a fork of it takes on, when it is not used, and when it ends."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from notebook_accel.cli.main import main
from notebook_accel.launch.engines import base_server
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.system import limits, processes
from notebook_accel.launch.wire.constants import RANK_MARK
from tests.launch.engines import calls
from tests.launch.engines.driver import Group, run
from tests.launch.own_processes import alive, outlive
from tests.launch.server import huge_pages
from tests.live_notebook import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a base server on Linux alone")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Where base servers are, short enough for the address of a socket."""
    found = tempfile.mkdtemp(prefix="base-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(base_server.VARIABLE, "1")
        patch.setenv("TMPDIR", found)
        # Small ones take the place of those of seconds.
        patch.setattr(base_server, "TRAINING", ("sched", "tests.launch.server.huge_pages"))
        yield Path(found)
        pids = [each["pid"] for _, each in base_server.running()]
        base_server.stop()
        assert not outlive(pids)
    shutil.rmtree(found)


def start(**options: Any) -> None:
    """Starts a base server, and waits until it takes requests."""
    # The previous one may still be ending.
    wait_until(lambda: status() is not None or base_server.start(os.environ, **options))
    wait_until(lambda: status() is not None)


def status() -> dict[str, Any] | None:
    return next((each for _, each in base_server.running()), None)


@pytest.fixture
def base(folder: Path) -> int:
    """The process ID of a base server that runs."""
    start()
    found = status()
    assert found is not None
    return int(found["pid"])


@pytest.fixture
def engine(base: int) -> Iterator[ServerEngine]:
    found = ServerEngine("fork")
    yield found
    found.close()


def is_forked(engine: ServerEngine) -> bool:
    assert engine.server is not None
    return engine.server.is_forked


# What a fork is


def test_a_server_is_a_fork_of_the_base_server(engine: ServerEngine, base: int) -> None:
    (parent,) = run(engine, calls.parents)
    assert is_forked(engine)
    assert base in parent


def test_a_launch_finds_the_trainings_modules_and_a_script_does_not(engine: ServerEngine) -> None:
    assert run(engine, calls.imported, ["sched", "torch"]) == [["sched", "torch"]]
    other = ServerEngine("fork")
    other.warm(script=True)
    assert run(other, calls.imported, ["sched", "torch"]) == [["torch"]]
    assert is_forked(other)
    other.close()


def test_the_modules_that_a_fork_has_are_not_imported_again(engine: ServerEngine) -> None:
    engine.warm()
    engine.preload(["sched"])
    assert engine.next is None
    engine.preload(["sched", "this"])
    assert engine.next is not None


def test_a_fork_takes_on_what_a_process_inherits(base: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same as of a server that this process has started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("SOMETHING", "else")
    (tmp_path / "json").mkdir()  # not a package, so it hides none
    monkeypatch.syspath_prepend(str(tmp_path))
    mask = os.umask(0o027)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (min(4096, hard) if hard != -1 else 4096, hard))
    found = []
    try:
        for shared in ("1", "0"):
            monkeypatch.setenv(base_server.VARIABLE, shared)
            engine = ServerEngine("fork")
            found += run(engine, calls.inherited)
            assert is_forked(engine) == (shared == "1")
            engine.close()
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    forked, started = found
    differing = {"MASTER_PORT": "", base_server.VARIABLE: ""}
    assert {**forked.pop("environment"), **differing} == {**started.pop("environment"), **differing}
    assert forked == started
    assert started["umask"] == 0o027


def test_forks_draw_other_random_numbers(base: int) -> None:
    drawn = []
    for _ in range(2):
        engine = ServerEngine("fork")
        drawn += run(engine, calls.numpy_state)
        assert is_forked(engine)
        engine.close()
    assert drawn[0] != drawn[1]


def test_a_fork_writes_to_the_log_of_its_driver(engine: ServerEngine) -> None:
    (parents,) = run(engine, calls.parents)
    assert engine.server is not None
    Path(f"/proc/{parents[0]}/fd/2").write_text("the last words")
    assert "the last words" in engine.server.why_it_ended()


def test_a_fork_has_no_descriptors_of_the_base_server(engine: ServerEngine) -> None:
    (parents,) = run(engine, calls.parents)
    assert is_forked(engine)
    server, keeper, half, base = map(opened, parents[:4])
    assert not server & (half | base)
    assert not keeper & (half | base)


def opened(pid: int) -> set[str]:
    """The sockets and pipes of a process."""
    found = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
    return {each for each in found if each.startswith(("socket:", "pipe:"))}


# When it is not used


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_LOGS", "+dynamo"),
        pytest.param("OMP_DISPLAY_ENV", "x", marks=pytest.mark.nightly),
        pytest.param("LC_ALL", "C", marks=pytest.mark.nightly),
        ("TQDM_MINITERS", "7"),
    ],
)
def test_another_variable_that_is_read_once_needs_another_server(
    base: int, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    engine = ServerEngine("fork")
    assert run(engine, calls.add, 1, 1) == [2]
    assert not is_forked(engine)
    engine.close()


def test_other_variables_do_not(base: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CUDA_VISIBLE_DEVICES": "1", "OMP_NUM_THREADS": "2", "TERM": "vt100", "RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    engine = ServerEngine("fork")
    assert run(engine, calls.add, 1, 1) == [2]
    assert is_forked(engine)
    engine.close()


def test_a_folder_that_hides_a_module_needs_another_server(
    base: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, forked in (("train.py", True), ("psutil.py", False)):
        (tmp_path / name).write_text("")
        engine = ServerEngine("fork")
        assert run(engine, calls.add, 1, 1) == [2]
        assert is_forked(engine) == forked
        engine.close()


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A control group below that of this process, in the first hierarchy in which there can be one."""
    for folder in limits.cgroups():
        group = folder / f"notebook-accel-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / "cgroup.procs").exists():
                yield group
                wait_until(partial(is_removed, group))  # once the last process in it has gone
                return
            group.rmdir()
    pytest.skip("this user may make no control groups here")


def is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def test_another_control_group_needs_another_server(base: int, control_group: Path) -> None:
    assert forked_elsewhere(f"open({str(control_group / 'cgroup.procs')!r}, 'w').write('0')\n") is False


def test_another_limit_or_priority_needs_another_server(base: int) -> None:
    for change in ("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", "import os; os.nice(1)"):
        assert forked_elsewhere(f"{change}\n") is False
    assert forked_elsewhere("") is True


def test_a_rank_has_servers_of_its_own(base: int) -> None:
    assert forked_elsewhere(f"import os; os.environ[{RANK_MARK!r}] = 'x'\n") is False


def test_it_can_be_turned_off(base: int) -> None:
    assert forked_elsewhere(f"import os; os.environ[{base_server.VARIABLE!r}] = '0'\n") is False


def forked_elsewhere(before: str) -> bool:
    """Whether the server of another process is a fork, after some code has run there."""
    code = (
        f"import os\n{before}from notebook_accel.launch.engines.fork_server import ServerEngine\n"
        "engine = ServerEngine('fork'); engine.warm(); engine.hand_over(os.getpid(), os.environ)\n"
        "print(engine.server.is_forked); engine.close()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout in ("True\n", "False\n"), done.stderr
    return done.stdout == "True\n"


def test_a_folder_that_others_may_write_to_is_not_used(base: int, folder: Path) -> None:
    (place,) = folder.iterdir()
    place.chmod(0o770)
    try:
        assert status() is None
        assert not base_server.start(os.environ)
    finally:
        place.chmod(0o700)
    assert status() is not None


def test_a_base_server_that_is_stopped_is_not_waited_for(base: int) -> None:
    os.kill(base, signal.SIGSTOP)
    try:
        engine = ServerEngine("fork")
        assert run(engine, calls.add, 1, 1) == [2]
        assert not is_forked(engine)
        engine.close()
    finally:
        os.kill(base, signal.SIGCONT)


def test_what_is_no_request_does_not_disturb_it(base: int) -> None:
    (address, _), *_ = base_server.running()
    for data in (
        b"",
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x09" + json.dumps({"op": 1}).encode(),
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(address))
            stranger.sendall(data)
    assert status() is not None


# Its end. To start one takes seconds, so what needs none comes after what has ended it.


def test_there_is_one(base: int) -> None:
    assert not base_server.start(os.environ)


def test_a_changed_file_ends_it(base: int) -> None:
    """The file is one that no other base server has imported: it would end, too."""
    file = Path(huge_pages.__file__)
    before = os.stat(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    try:
        engine = ServerEngine("fork")
        assert run(engine, calls.add, 1, 1) == [2]
        assert not is_forked(engine)
        engine.close()
        assert not outlive([base])
    finally:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_variable_that_a_build_for_gpus_reads_as_it_is_imported_needs_another_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which variables these are is known from the imports alone."""
    monkeypatch.setattr(base_server, "TRAINING", ("tests.launch.server.cuda_build",))
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda-12")
    base_server.stop()
    start()
    for name, forked in (("CUDA_HOME", False), ("CUDA_VISIBLE_DEVICES", True)):
        assert forked_elsewhere(f"os.environ[{name!r}] = '1'\n") == forked
    base_server.stop()


def test_it_ends_without_kernels(base: int) -> None:
    """Once three others of its installation have been used later, or none has used it for some time."""
    ((address, _),) = base_server.running()
    installation = address.name.partition("-")[0]
    with contextlib.ExitStack() as others:
        for name in ("elsewhere-1", f"{installation}-killed", *(f"{installation}-{each}" for each in (1, 2, 3))):
            assert base_server.of_this_process() is not None  # it looks around after each request
            other = others.enter_context(socket.socket(socket.AF_UNIX))
            other.bind(str(address.with_name(name)))
            others.callback(address.with_name(name).unlink)
            if not name.endswith("killed"):
                other.listen()
        base_server.of_this_process()
        assert not outlive([base])
    wait_until(lambda: base_server.start(os.environ, idle=2.0))  # once the other one has ended
    wait_until(lambda: status() is not None)
    wait_until(lambda: status() is None)


def test_it_ends_once_memory_is_scarce(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Looks at the memory after each request, and once a minute. What was forked from it goes on."""
    base_server.stop()
    free, scarce = tmp_path / "free", "tests.launch.server.scarce:main"
    free.write_text(str(2**34))
    started = processes.start
    monkeypatch.setattr(processes, "start", lambda _, *rest, **named: started(scarce, *rest, **named))
    monkeypatch.setenv("FREE_MEMORY", str(free))
    start()
    engine = ServerEngine("fork")
    assert run(engine, calls.add, 1, 1) == [2]
    assert is_forked(engine)
    found = status()
    assert found is not None
    free.write_text(str(2**28))
    status()
    assert not outlive([found["pid"]])
    assert run(engine, calls.add, 1, 1) == [2]
    engine.close()


def test_a_command_starts_one_for_those_to_come(folder: Path, tmp_path: Path) -> None:
    base_server.stop()
    wait_until(lambda: not any(map(base_server.is_started, folder.glob("*/*.lock"))))
    (tmp_path / "script.py").write_text("")
    command = [sys.executable, "-m", "notebook_accel", "launch", "--cpu", "--num_processes=2", "script.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    wait_until(lambda: status() is not None)


def test_kernels_go_on_when_it_is_killed(base: int) -> None:
    engine = ServerEngine("fork")
    with Group(engine) as group:
        group.wait_for_hello()
        assert is_forked(engine)
        os.kill(base, signal.SIGKILL)
        assert not outlive([base])
        assert group.run(calls.add, 2, 2) == [4]
    assert run(engine, calls.add, 1, 1) == [2]
    engine.close()
    other = ServerEngine("fork")
    assert run(other, calls.add, 1, 1) == [2]
    assert not is_forked(other)
    other.close()


def test_a_launch_starts_one_for_those_to_come(folder: Path) -> None:
    base_server.stop()
    engine = ServerEngine("fork")
    engine.share()
    assert run(engine, calls.add, 1, 1) == [2]
    assert not is_forked(engine)
    assert status() is None
    engine.share()
    wait_until(lambda: status() is not None)
    engine.close()


def test_a_server_ends_with_its_kernel(base: int) -> None:
    code = (
        "import os, signal\n"
        "from notebook_accel import notebook_launcher\n"
        "from tests.launch.engines import calls\n"
        "print(*notebook_launcher(calls.parents, num_processes=1)[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    server, keeper, *above = map(int, done.stdout.split())
    assert base in above
    assert not outlive([server, keeper])
    assert alive([base]) == [base]


def test_a_server_that_is_closed_goes(engine: ServerEngine) -> None:
    (parents,) = run(engine, calls.parents)
    assert is_forked(engine)
    engine.close()
    assert not outlive(parents[:2])


def test_a_stopped_server_continues_when_its_kernel_closes_it(engine: ServerEngine) -> None:
    (parents,) = run(engine, calls.parents)
    os.kill(parents[0], signal.SIGSTOP)
    engine.close()
    assert not outlive(parents[:2])


# From other places


def test_a_command_uses_it_and_leaves_nothing(base: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, psutil\nprint(*[p.pid for p in psutil.Process().parents()], 'sched' in sys.modules)"
    )
    command = [sys.executable, "-m", "notebook_accel", "launch", "--cpu", "--num_processes=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (first, *pids, imported), _ = (line.split() for line in done.stdout.splitlines())
    assert str(base) in pids
    assert imported == "False"
    assert not outlive([int(first)])


def test_the_server_of_jupyter_starts_one_once_something_was_launched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTEBOOK_ACCEL_STATE", str(tmp_path))
    started: list[object] = []
    monkeypatch.setattr(base_server, "is_started", lambda address: bool(started.append(address)))

    def ends_at_once(entry: str, channel: socket.socket, *_: object, **__: object) -> subprocess.Popen[bytes]:
        channel.close()
        return subprocess.Popen(["true"])

    monkeypatch.setattr(base_server.processes, "start", ends_at_once)
    base_server.start_again()
    assert not started
    assert base_server.start(os.environ)
    base_server.start_again()
    assert len(started) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user takes the superuser's rights")
def test_other_users_are_not_served(base: int) -> None:
    ((address, _),) = base_server.running()
    code = (
        "import os, socket, sys\nos.setuid(65534)\nsocket_ = socket.socket(socket.AF_UNIX)\n"
        "try:\n    socket_.connect(sys.argv[1])\nexcept PermissionError:\n    sys.exit(3)\n"
        'socket_.sendall(b\'\\0\\0\\0\\x10{"op": "status"}\')\nsys.exit(len(socket_.recv(100)))'
    )
    command = [sys.executable, "-c", code, str(address)]
    assert subprocess.run(command, timeout=60).returncode == 3
    places = (address.parent.parent, address.parent, address)
    before = [each.stat().st_mode & 0o777 for each in places]
    try:
        for each in places:
            each.chmod(0o777)
        assert subprocess.run(command, timeout=60, stderr=subprocess.DEVNULL).returncode in (0, 1)
    finally:
        for each, mode in zip(places, before, strict=True):
            each.chmod(mode)
    assert status() is not None


def test_the_second_server_shares_its_memory(base: int) -> None:
    def own(pid: int) -> int:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) // 1024

    engines = [ServerEngine("fork") for _ in range(2)]
    servers = [run(each, calls.parents)[0] for each in engines]
    assert all(map(is_forked, engines))
    assert [max(map(own, pids[:2])) for pids in servers] < [16, 16]
    for each in engines:
        each.close()


def test_the_command_line_shows_it_and_ends_it(base: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*words: str) -> str:
        return CliRunner().invoke(main, ["server", *words]).output

    assert f"base server (process {base})" in ask("status")
    assert json.loads(ask("status", "--json"))[0]["pid"] == base
    shown = base_server.of_this_process()
    assert shown is not None
    assert shown["pid"] == base
    with monkeypatch.context() as patch:
        patch.setattr(sys, "prefix", "/elsewhere")
        assert f"base server of {shown['prefix']} (process {base})" in ask("status")
        assert "ended 0 base servers\n1 base server left in other environments" in ask("stop")
    assert ask("stop") == "ended 1 base server\n"
    assert not outlive([base])
    assert ask("status") == "no base server is running\n"
