"""The life of the process that starts ranks, and of what it has started."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from notebook_accel import LaunchError, notebook_launcher
from notebook_accel.events import Exited
from notebook_accel.launch import engines
from notebook_accel.launch.engines.fork_server import ServerEngine
from notebook_accel.launch.engines.load_time import load_time
from notebook_accel.launch.engines.server_connection import Server
from notebook_accel.launch.rank.rank import STACKS_SIGNAL
from notebook_accel.launch.server import abandoned
from tests.free_ports import free_port
from tests.launch.engines import calls
from tests.launch.engines.driver import Group, run
from tests.launch.own_processes import alive, descendants, outlive
from tests.launch.server import huge_pages
from tests.live_notebook import wait_until

pytestmark = pytest.mark.early

GATED = "import os\nwith open(os.path.join(os.path.dirname(__file__), 'gate')) as gate:\n    gate.read()\n"
"""A package whose import lasts until a named pipe in its folder is opened and closed."""
PACKAGES = {
    "quiet_package": "import os\nPID = os.getpid()\n",
    "quiet_package.part": "",
    "threaded_package": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n",
    "threaded_package.part": "",
    "third_package": "",
    "deadly_package": "import os\nos._exit(3)\n",
    "another_deadly_package": "import os\nos._exit(3)\n",
    "failing_package": "raise SystemExit('not today')\n",
    "slow_package": GATED,
    "patient_package": GATED,
    "held_package": GATED,
    "setting_package": "import os\nSETTING = os.environ.get('SETTING')\n",
    "masking_package": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})\n",
    "one_more": "",
    "yet_one_more": "",
    "after_the_kill": "",
    "beside_a_deadly_one": "",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of installed packages."""
    folder = tmp_path_factory.mktemp("site")
    for name, text in PACKAGES.items():
        package, _, part = name.partition(".")
        (folder / package).mkdir(exist_ok=True)
        (folder / package / f"{part or '__init__'}.py").write_text(text)
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def engine(site: Path) -> Iterator[ServerEngine]:
    """A fork server that these tests share; each leaves it able to serve."""
    found = ServerEngine("fork")
    found.warm()  # only a server that has been started can be asked for another that imports more
    yield found
    found.close()


@pytest.fixture(scope="module")
def spawning() -> Iterator[ServerEngine]:
    """As `engine`, for ranks that are spawned."""
    found = ServerEngine("spawn")
    yield found
    found.close()


def server_of(engine: ServerEngine, **options: Any) -> int:
    (pid,) = run(engine, os.getppid, **options)
    assert isinstance(pid, int)
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    assert not outlive([pid])


def preload(engine: ServerEngine, *names: str) -> None:
    """Waits until the engine has done what it can."""
    engine.preload(names)
    while engine.next is not None:
        assert select.select([engine.next.control], [], [], 20)[0], "the successor says nothing"
        engine.preload([])


# The server itself


def test_the_server_is_warm_before_the_first_launch(engine: ServerEngine) -> None:
    engine.warm()
    engine.warm()
    names = ["torch", "numpy", "tqdm", "psutil"]  # the last is for a rank's second thread, which looks at memory
    assert run(engine, calls.imported, names) == [names]


def test_the_server_is_fit_to_be_forked(engine: ServerEngine) -> None:
    server = server_of(engine)
    assert os.listdir(f"/proc/{server}/task") == [str(server)]
    assert os.getsid(server) == server
    files = [os.path.realpath(f"/proc/{server}/fd/{fd}") for fd in os.listdir(f"/proc/{server}/fd")]
    assert not [path for path in files if path.startswith("/dev/nvidia")]


def test_no_socket_of_the_server_or_its_ranks_has_a_name(engine: ServerEngine) -> None:
    """Whoever knows a socket's name can connect, unless the permissions of its folder forbid it."""
    with Group(engine) as group:
        (rank,) = group.wait_for_hello()
        server = psutil.Process(rank).ppid()
        for pid in (server, rank):
            assert {each.laddr for each in psutil.Process(pid).net_connections(kind="unix")} == {""}


def test_an_interrupt_of_everything_leaves_the_server_alone(engine: ServerEngine) -> None:
    server = server_of(engine)
    for pid in [server, *descendants(server)]:
        os.kill(pid, signal.SIGINT)
    assert server_of(engine) == server


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_closing_ends_everything_but_what_was_bequeathed_and_a_new_start_begins_anew(method: str) -> None:
    engine, successor = ServerEngine(method), ServerEngine(method)
    try:
        with Group(engine, 2) as group:
            group.call(calls.wait)
            group.wait_for_running()
            server = psutil.Process(group.wait_for_hello()[0]).ppid()
            processes = [server, *descendants(server)]
            assert len(processes) >= 4  # with two ranks and the store
            control = engine.hand_over(os.getpid(), os.environ)
            assert (control is None) == (method == "spawn")
            if control is not None:
                successor.take_over(control, os.environ)
                assert psutil.Process(server_of(successor)).ppid() == server
            engine.close()
            assert not outlive(processes)
        if control is not None:
            assert server_of(successor) not in processes
        if method == "spawn":  # a fork server takes seconds
            assert server_of(engine) not in processes
    finally:
        engine.close()
        successor.close()


KERNEL = """
import json, os, psutil, sys, time
from notebook_accel import notebook_launcher
from notebook_accel.events import Phase
from notebook_accel.launch.server import abandoned
from tests.launch.engines import calls
from tests.launch.own_processes import descendants

def leave_children():
    if "UNMARKED" in os.environ:
        del os.environ[abandoned.RANK_MARK]
    calls.leave_children()

job = notebook_launcher(leave_children, num_processes=2, device="cpu", block=False)
while not all(state.lines for state in job.ranks):
    time.sleep(0.01)
started = sorted(descendants())
far = [int(pid) for state in job.ranks for pid in state.lines[0].text.split()]
assert set(far) <= set(started)
server = psutil.Process(job.ranks[0].pid).ppid()
if os.fork() == 0:
    # In one write: the thread of the job prints what the ranks have said at the same time.
    os.write(1, f"STARTED {json.dumps([os.getpid(), server, started])}\\n".encode())
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("name", "stopped"), [("forkserver", True), pytest.param("spawn", False, marks=pytest.mark.nightly)]
)
def test_everything_ends_with_a_kernel_that_is_killed(name: str, stopped: bool) -> None:
    """Even if the server was stopped, and can't notice."""
    root = str(Path(__file__).parents[3])
    environ = {**os.environ, engines.VARIABLE: name, "PYTHONPATH": root}
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, env=environ, text=True) as kernel:
        assert kernel.stdout is not None
        told = next(line for line in kernel.stdout if line.startswith("STARTED"))
        child, server, started = json.loads(told.removeprefix("STARTED"))
        if stopped:
            os.kill(server, signal.SIGSTOP)
        kernel.kill()
    # It has forked: its child still holds every socket open.
    try:
        assert len(started) >= 13  # the keeper, the server, the store, two ranks, and four descendants of each
        assert not outlive(started)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("with_server", [False, True])
def test_everything_ends_with_a_kernel_and_a_keeper_that_are_killed_at_once(with_server: bool) -> None:
    """The server ends what is left; without it, nothing adopts that, and the next server's keeper ends it."""
    environ = {**os.environ, engines.VARIABLE: "forkserver", "PYTHONPATH": str(Path(__file__).parents[3])}
    if not with_server:
        environ["UNMARKED"] = "1"  # so that the keepers of other servers on this machine end nothing
    with subprocess.Popen([sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, env=environ, text=True) as kernel:
        assert kernel.stdout is not None
        told = next(line for line in kernel.stdout if line.startswith("STARTED"))
        child, server, started = json.loads(told.removeprefix("STARTED"))
        killed = [kernel.pid, psutil.Process(server).ppid(), *([server] if with_server else [])]
        for signum in (signal.SIGSTOP, signal.SIGKILL):  # stopped, so that none sees the end of another
            for pid in killed:
                os.kill(pid, signum)
    mine = subprocess.Popen(["sleep", "1000"], env={**os.environ, **abandoned.mark(os.getpid())})
    engine = ServerEngine("fork")
    try:
        if with_server:
            server_of(engine)
        assert not outlive(started)
        assert mine.poll() is None  # its kernel lives
    finally:
        engine.close()
        mine.kill()
        mine.wait()
        os.kill(child, signal.SIGKILL)


KEEPER = """
import os
from notebook_accel.launch.server import abandoned, keeper
abandoned.RANK_MARK = "NOTEBOOK_ACCEL_TEST"
keeper.fork_server(os.getppid())
os._exit(0)  # the server
"""


def test_a_keeper_ends_what_it_has_not_started_if_its_kernel_has_ended() -> None:
    """The variable has a name of its own here, so that no other keeper on this machine ends the process."""
    kernel = subprocess.Popen(["sleep", "1000"])
    (mark,) = abandoned.mark(kernel.pid).values()
    kernel.kill()
    kernel.wait()
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "NOTEBOOK_ACCEL_TEST": mark}) as left:
        subprocess.run([sys.executable, "-c", KEEPER], check=True, timeout=45)
        try:
            assert not outlive([left.pid], 20)
        finally:
            left.kill()


def test_what_ranks_have_started_ends_with_a_server_that_is_killed(engine: ServerEngine) -> None:
    with Group(engine) as group:
        group.call(calls.leave_children)
        (rank,) = group.wait_for_hello()
        group.wait_for(lambda: len(group.output[0, "out"].split()) == 3)
        server = psutil.Process(rank).ppid()
        started = descendants(server)
        assert {int(pid) for pid in group.output[0, "out"].split()} < started
        kill(server)
        assert not outlive(started)


def test_a_server_that_was_stopped_goes_on_when_its_ranks_are_to_be_signalled(engine: ServerEngine) -> None:
    with Group(engine) as group:
        group.call(calls.wait)
        group.wait_for_running()
        os.kill(server := psutil.Process(group.wait_for_hello()[0]).ppid(), signal.SIGSTOP)
        group.ranks.signal(0, signal.SIGKILL)
        group.wait_for_exits()
    assert server_of(engine) == server


def test_a_server_that_was_killed_is_replaced_at_the_next_start(engine: ServerEngine) -> None:
    with Group(engine) as group:
        group.call(calls.wait)
        group.wait_for_running()
        ranks = group.wait_for_hello()
        server = psutil.Process(ranks[0]).ppid()
        kill(server)
        with pytest.raises(LaunchError, match="the process that starts the ranks has ended"):
            group.wait_for_exits()
        assert not outlive(ranks)
    assert server_of(engine) != server


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_a_server_has_started_ends_with_it_even_if_it_can_notice_nothing(method: str, site: Path) -> None:
    """A server of its own imports torch, or its store and its rank do."""
    gate = site / "held_package" / "gate"
    engine = ServerEngine(method)
    try:
        with Group(engine) as group:
            group.call(calls.wait)
            group.wait_for_running()
            server = psutil.Process(psutil.Process(group.wait_for_hello()[0]).ppid())
            keeper = server.parent()
            assert keeper is not None
            roles = 2  # the rank and the store
            if method == "fork":  # and a successor, which waits in an import
                os.mkfifo(gate)
                engine.preload(["held_package"])
                opened = os.open(gate, os.O_WRONLY)
                roles += 1
            server.suspend()  # it starts no more
            started = server.children()
            assert len(started) >= roles
            for each in started:
                wait_until(lambda each=each: each.status() == psutil.STATUS_SLEEPING)
                each.suspend()
            keeper.suspend()  # it ends nothing
            try:
                server.kill()
                assert not outlive([each.pid for each in started])
            finally:
                keeper.resume()
    finally:
        engine.close()
    if method == "fork":
        os.close(opened)


def test_what_was_preloaded_comes_back_after_a_server_was_killed(engine: ServerEngine) -> None:
    preload(engine, "after_the_kill")
    assert run(engine, calls.imported, ["after_the_kill"]) == [["after_the_kill"]]
    kill(server_of(engine))
    run(engine, calls.add, 1, 1)
    preload(engine)
    assert run(engine, calls.imported, ["after_the_kill"]) == [["after_the_kill"]]


def test_a_server_that_cannot_start_says_why(spawning: ServerEngine) -> None:
    with pytest.raises(LaunchError, match=r"has ended\. It said:\n(.|\n)*encodings"):
        run(spawning, calls.add, 1, 1, environ={"PYTHONHOME": "/nowhere"})
    assert run(spawning, calls.add, 1, 1) == [2]


def test_a_server_that_has_ended_before_it_is_asked_for_ranks_says_why(
    spawning: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Server.start

    def start_and_outlast(*args: Any, **options: Any) -> Server:
        server = start(*args, **options)
        wait_until(lambda: not server.is_alive())
        return server

    monkeypatch.setattr(Server, "start", start_and_outlast)
    with pytest.raises(LaunchError, match=r"has ended\. It said:\n(.|\n)*encodings"):
        run(spawning, calls.add, 1, 1, environ={"PYTHONHOME": "/nowhere"})
    monkeypatch.undo()
    assert run(spawning, calls.add, 1, 1) == [2]


def test_a_variable_that_is_read_at_load_time_gives_a_fresh_server(spawning: ServerEngine) -> None:
    before = server_of(spawning)
    assert server_of(spawning, environ={"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "3"}) == before
    changed = server_of(spawning, environ={"TORCH_LOGS": "dynamo"})
    assert changed != before
    assert not outlive([before])
    assert server_of(spawning, environ={"TORCH_LOGS": "dynamo"}) == changed
    assert server_of(spawning) != changed


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        ("PYTORCH_ALLOC_CONF", True),
        ("TORCH_LOGS", True),
        ("TORCHDYNAMO_DISABLE", True),
        ("TORCHINDUCTOR_FX_GRAPH_CACHE", True),
        ("TORCHINDUCTOR_CACHE_DIR", False),
        ("LD_PRELOAD", True),
        ("OMP_PROC_BIND", True),
        ("MKL_SERVICE_FORCE_INTEL", True),
        ("PYTHONHASHSEED", True),
        ("GLOO_DEVICE_TRANSPORT", True),
        ("GLOO_SOCKET_IFNAME", False),
        ("OMP_NUM_THREADS", False),
        ("PYTHONPATH", False),
        ("PYTORCH_NVML_BASED_CUDA_CHECK", False),
        ("NCCL_DEBUG", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("HOME", False),
    ],
)
def test_a_variable_matters_to_the_server_if_a_library_reads_it_as_it_loads(name: str, matters: bool) -> None:
    assert (load_time({name: "1"}) != load_time({})) is matters


def test_a_fresh_server_has_the_packages_of_the_last(engine: ServerEngine) -> None:
    preload(engine, "third_package")
    server_of(engine, environ={"TORCH_SHOW_CPP_STACKTRACES": "1"})
    with Group(engine, environ={"TORCH_SHOW_CPP_STACKTRACES": "1"}) as group:
        group.run(calls.add, 1, 1)
        preload(engine)
    found = run(engine, calls.imported, ["third_package"], environ={"TORCH_SHOW_CPP_STACKTRACES": "1"})
    assert found == [["third_package"]]


# Preloading


def test_packages_are_preloaded_but_for_those_that_forbid_a_fork(engine: ServerEngine) -> None:
    run(engine, calls.add, 1, 1)
    preload(engine, "quiet_package", "quiet_package.part", "threaded_package", "threaded_package.part", "third_package")
    names = [name for name in PACKAGES if name.startswith(("quiet", "threaded", "third"))]
    assert run(engine, calls.imported, names) == [["quiet_package", "quiet_package.part", "third_package"]]
    server = server_of(engine)
    assert run(engine, calls.attribute, "quiet_package", "PID") == [server]
    assert os.listdir(f"/proc/{server}/task") == [str(server)]
    # Which a rank can import by itself.
    assert run(engine, calls.attribute, "threaded_package", "__name__") == ["threaded_package"]


def test_a_package_that_was_left_out_is_not_tried_again(engine: ServerEngine) -> None:
    preload(engine, "threaded_package")
    server = server_of(engine)
    preload(engine, "threaded_package")
    assert server_of(engine) == server


@pytest.mark.parametrize("name", ["deadly_package", "failing_package", "no_such_package"])
def test_a_package_that_fails_does_no_harm(name: str, engine: ServerEngine) -> None:
    preload(engine, name)
    assert run(engine, calls.add, 1, 1) == [2]


def test_a_package_that_ends_the_server_takes_no_other_with_it(engine: ServerEngine) -> None:
    run(engine, calls.add, 1, 1)
    engine.preload(["another_deadly_package"])
    preload(engine, "beside_a_deadly_one")
    assert run(engine, calls.imported, ["beside_a_deadly_one"]) == [["beside_a_deadly_one"]]
    kill(server_of(engine))
    run(engine, calls.add, 1, 1)
    preload(engine)
    assert run(engine, calls.imported, ["beside_a_deadly_one"]) == [["beside_a_deadly_one"]]


def test_nobody_waits_for_a_slow_import(engine: ServerEngine, site: Path) -> None:
    gate = site / "slow_package" / "gate"
    os.mkfifo(gate)
    server = server_of(engine)
    engine.preload(["slow_package"])
    # The gate opens once the import has come to it.
    opened: list[int] = []
    opener = threading.Thread(target=lambda: opened.append(os.open(gate, os.O_WRONLY)))
    opener.start()
    opener.join()
    try:
        engine.preload([])
        assert server_of(engine) == server
        assert run(engine, calls.imported, ["slow_package"]) == [[]]
    finally:
        os.close(opened[0])
    preload(engine)
    assert run(engine, calls.imported, ["slow_package"]) == [["slow_package"]]


def test_a_server_moves_no_memory_into_huge_pages_while_another_is_to_replace_it(site: Path) -> None:
    if not huge_pages.are_supported():
        pytest.skip("this system cannot move memory into huge pages")
    gate = site / "patient_package" / "gate"
    os.mkfifo(gate)
    engine = ServerEngine("fork")
    try:
        engine.warm()
        engine.preload(["patient_package"])
        with open(gate, "w"):  # once the import has come to it
            server = server_of(engine)
            # Its last chore: it then has the store's process, the replacement, and two warm ranks.
            wait_until(lambda: len(psutil.Process(server).children()) == 4)
            assert not huge_pages.kilobytes(server)
        preload(engine)
        replacement = server_of(engine)
        assert replacement != server
        wait_until(lambda: huge_pages.kilobytes(replacement))
    finally:
        engine.close()


def test_a_server_that_is_succeeded_goes_once_its_groups_have(engine: ServerEngine, tmp_path: Path) -> None:
    with Group(engine) as group:
        group.call(calls.wait_unless_told, str(tmp_path / "begun"))
        wait_until((tmp_path / "begun").exists)
        server = psutil.Process(group.wait_for_hello()[0]).ppid()
        preload(engine, "one_more")
        successor = server_of(engine)
        assert successor != server
        assert alive([server, successor]) == [server, successor]
        group.ranks.signal(0, signal.SIGINT)
        group.end()
        assert group.value(0) == "saved"
    assert not outlive([server])
    assert server_of(engine) == successor


def test_a_successor_ends_what_its_ranks_leave_behind(engine: ServerEngine) -> None:
    before = server_of(engine)
    preload(engine, "yet_one_more")
    with Group(engine) as group:
        (left,) = group.run(calls.leave_children_and_return)
        assert server_of(engine) != before
    assert not outlive(left)


def test_a_package_is_preloaded_in_the_environment_of_now(
    engine: ServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, calls.add, 1, 1)
    monkeypatch.setenv("SETTING", "since the server began")
    preload(engine, "setting_package")
    assert run(engine, calls.attribute, "setting_package", "SETTING") == ["since the server began"]


def test_spawned_ranks_inherit_nothing(spawning: ServerEngine) -> None:
    run(spawning, calls.add, 1, 1)
    preload(spawning, "third_package")
    assert run(spawning, calls.imported, ["third_package"]) == [[]]


# Its ranks


def test_what_is_written_while_a_rank_ends_is_there_before_its_last_word(spawning: ServerEngine) -> None:
    with Group(spawning, environ={"PYTHONUNBUFFERED": None}) as group:
        group.call(calls.write_at_exit)
        group.wait_for_answers()
        group.finish()
        group.wait_for(lambda: group.of(0, Exited))
        assert sorted(group.output[0, "out"].split(b"from ")) == [b"", b"C", b"Python"]
        assert group.output[0, "err"] == b"from Python too"


def test_signals_that_the_kernel_has_blocked_reach_the_server_and_the_ranks(spawning: ServerEngine) -> None:
    signals = {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM}
    spawning.close()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        spawning.warm()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert run(spawning, calls.blocked_signals) == [[STACKS_SIGNAL]]


def test_signals_that_a_preloaded_package_has_blocked_reach_the_server_and_the_ranks(engine: ServerEngine) -> None:
    run(engine, calls.add, 1, 1)
    preload(engine, "masking_package")
    assert run(engine, calls.imported, ["masking_package"]) == [["masking_package"]]
    assert run(engine, calls.blocked_signals) == [[STACKS_SIGNAL]]


# The store


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionResetError:  # it came while the socket was being closed; the next is refused
        return False
    except ConnectionRefusedError:
        return True
    return False


def test_a_store_ends_with_its_group(engine: ServerEngine) -> None:
    with Group(engine) as group:
        port = group.spec.rendezvous.port
        assert group.run(calls.reduce) == [1.0]
        assert not refuses(port)
    wait_until(lambda: refuses(port))


def test_a_store_of_a_group_that_is_closed_at_once_ends_too(engine: ServerEngine) -> None:
    ports = []
    for _ in range(5):
        with Group(engine) as group:
            ports.append(group.spec.rendezvous.port)
    wait_until(lambda: all(map(refuses, ports)))


def listeners(port: int) -> set[int | None]:
    """The processes that hold a port open."""
    return {each.pid for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.port == port}


def test_a_store_that_was_killed_is_replaced(engine: ServerEngine) -> None:
    with Group(engine) as group:
        server = psutil.Process(group.wait_for_hello()[0]).ppid()
        wait_until(lambda: len(listeners(group.spec.rendezvous.port)) == 1)  # the kernel and the server let go of it
        (store,) = listeners(group.spec.rendezvous.port)
        assert store in descendants(server)
        kill(store)
    assert run(engine, calls.reduce, size=2) == [3.0, 3.0]
    assert server_of(engine) == server


def on_two_machines(function: Any, *, sizes: tuple[int, ...] = (1, 1), nodes: int = 2, **options: Any) -> list[Any]:
    """Launches from both; returns what comes of each, which may be an error."""
    port = free_port()
    jobs = [
        notebook_launcher(
            function, (), size, device="cpu", num_nodes=nodes, node_rank=rank, use_port=port, block=False, **options
        )
        for rank, size in enumerate(sizes)
    ]
    ends = []
    for job in jobs:
        try:
            ends.append(job.result(timeout=60))
        except LaunchError as error:
            ends.append(str(error))
    return ends


def test_machines_meet() -> None:
    assert on_two_machines(calls.reduce, sizes=(2, 2)) == [[10.0, 10.0], [10.0, 10.0]]


def test_machines_with_different_numbers_of_ranks_do_not_meet() -> None:
    for end in on_two_machines(calls.rank, sizes=(1, 2)):
        assert "[1, 2]: give all the same num_processes" in end


def test_a_machine_that_does_not_come_is_named() -> None:
    (end,) = on_two_machines(calls.rank, sizes=(1,), rdzv_conf={"timeout": 1})
    assert "node_rank 1 have not joined within 1 s. Start the same launch there" in end


def test_machines_of_different_runs_do_not_meet() -> None:
    port = free_port()
    options = {"device": "cpu", "num_nodes": 2, "use_port": port, "block": False, "rdzv_conf": {"timeout": 1}}
    jobs = [notebook_launcher(calls.rank, (), 1, node_rank=rank, rdzv_id=f"run {rank}", **options) for rank in range(2)]
    for job in jobs:
        with pytest.raises(LaunchError, match=r"have not joined|the rendezvous of the machines"):
            job.result(timeout=60)
