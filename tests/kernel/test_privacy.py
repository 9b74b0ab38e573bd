"""A launch opens nothing to others: no socket beyond the loopback interface, no file that others can read."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.live_notebook import Notebook


@pytest.fixture
def running(notebook: Notebook, tmp_path: Path):
    """A notebook whose job has two ranks that have met, and wait."""
    notebook.check(f"""
    def wait():
        print("rank", join(), "is ready")
        wait_for("{tmp_path}/done")

    big = np.ones(1_000_000)
    job = notebook_launcher(lambda: (wait(), big.sum()), num_processes=2, block=False)
    """)
    wait_for_both = "import time\nwhile sum(len(state.lines) for state in job.ranks) < 2: time.sleep(0.01)"
    notebook.check(wait_for_both)
    yield notebook
    (tmp_path / "done").touch()
    assert notebook.value("job.wait(10)")


def connections(notebook: Notebook) -> Iterator[Any]:
    """The connections of all processes that come from the kernel; one may end meanwhile."""
    for process in notebook.processes():
        with contextlib.suppress(psutil.Error):
            yield from process.net_connections("inet")


def test_sockets_listen_on_the_loopback_interface_only(running: Notebook):
    listening = [
        connection.laddr.ip
        for connection in connections(running)
        if connection.status == psutil.CONN_LISTEN or connection.type.name == "SOCK_DGRAM"
    ]
    assert listening, "the ranks meet somewhere"
    assert all(address.startswith("127.") for address in listening)


def test_connections_do_not_leave_the_machine(running: Notebook):
    found = {connection.raddr.ip for connection in connections(running) if connection.raddr}
    assert found
    assert all(address.removeprefix("::ffff:").startswith("127.") for address in found)


def test_sockets_of_the_file_system_are_not_used(running: Notebook):
    """Whoever can reach a path could connect to it; our sockets come in pairs, without a name."""
    named = [
        connection.laddr
        for process in running.processes()
        for connection in process.net_connections("unix")
        if connection.laddr
    ]
    assert named == []


def test_no_file_has_a_name(open_notebook: Callable[..., Notebook]):
    """What has no name can't be opened by others, and can't be left behind.

    In a kernel whose temporary folder is its own: others share theirs, as they share a base server.
    """
    notebook = open_notebook(env={"SHARES": "nothing"})
    notebook.check("import time\nfrom notebook_accel import notebook_launcher")
    notebook.check("notebook_launcher(int, num_processes=2)")
    folders = [notebook.temporary, notebook.value("import os; os.getcwd()")]
    before = [os.listdir(folder) for folder in folders]
    notebook.check("job = notebook_launcher(time.sleep, (600,), num_processes=2, block=False)")
    notebook.check("while not all(state.phase.value == 'running' for state in job.ranks): time.sleep(0.01)")
    assert [os.listdir(folder) for folder in folders] == before
    assert notebook.value("job.cancel(), job.wait(30)") == (True, True)
    assert [os.listdir(folder) for folder in folders] == before


def test_nothing_of_the_call_stands_on_a_command_line(notebook: Notebook):
    """Command lines are readable by every user of the machine."""
    notebook.check("""
    job = notebook_launcher(time.sleep, (600,), num_processes=2, env={"OWN_SECRET": "s3cret"}, block=False)
    while not all(state.phase.value == "running" for state in job.ranks): time.sleep(0.01)
    """)
    try:
        for process in notebook.processes():
            assert "s3cret" not in " ".join(process.cmdline())
    finally:
        assert notebook.value("job.cancel(), job.wait(5)") == (True, True)


def test_ranks_hold_no_socket_of_another_launch(running: Notebook):
    """What a rank inherits, its own workers would too."""
    held = running.value("notebook_launcher(lambda: len(os.listdir('/proc/self/fd')), num_processes=1)")[0]
    assert held < 20
